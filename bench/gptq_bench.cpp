// Speed of second-order quantization: its linear algebra compared with the machine's peak, and the
// time for whole linears in seconds.
#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "base/table.h"
#include "base/text.h"
#include "quantize/linear_algebra/matrix.h"
#include "quantize/methods/gptq.h"
#include "tools/bench/parts/limits.h"
#include "tools/common/options.h"

namespace leq {
namespace {

constexpr std::int64_t kTokens = 2048;  // tokens of one measured X^T X
constexpr std::int64_t kMaxColumns = 32768;

struct Shape {
  std::int64_t rows = 0, columns = 0;
};

Shape parse_shape(const std::string& text) {
  const auto parts = split(text, "x");
  const std::int64_t rows = parse_int(parts[0]).value_or(0);
  const std::int64_t columns = parts.size() == 1 ? rows : parse_int(parts[1]).value_or(0);
  require(
      parts.size() <= 2 && rows > 0 && columns > 0 && rows <= kMaxColumns && columns <= kMaxColumns,
      "expected a width or ROWSxCOLUMNS up to ", kMaxColumns, " as in 4096 or 2048x5632, found '",
      printable(text), "'");
  return {rows, columns};
}

double seconds_of(const std::function<void()>& work) {
  const Stopwatch watch;
  work();
  return watch.seconds();
}

// The rows of one linear with random weights. X^T X and the products that propagate errors are
// compared with the f32 peak, the factorization with the f64 peak; each peak is measured before and
// after. gptq and gptq+ (int4-g128) are timed in seconds. The best of `runs` counts.
class GptqBench {
 public:
  GptqBench(Shape shape, int threads, int runs, cpu::LimitMeter& meter)
      : shape_(shape), pool_(threads), runs_(runs), meter_(meter) {
    Random random(1);
    x_.resize(static_cast<std::size_t>(kTokens * shape.columns));
    weight_.resize(static_cast<std::size_t>(shape.rows * shape.columns));
    for (float& value : x_) value = random.normal();
    for (float& value : weight_) value = 0.02f * random.normal();
    statistics_.columns = shape.columns;
    statistics_.hessian.resize(static_cast<std::size_t>(shape.columns * shape.columns));
    input_ = {.name = "random",
              .weight = weight_,
              .rows = shape.rows,
              .columns = shape.columns,
              .scheme = *parse_scheme("int4-g128"),
              .statistics = &statistics_,
              .pool = &pool_};
  }

  std::vector<Row> rows() {
    const auto k = static_cast<double>(shape_.columns), n = static_cast<double>(shape_.rows);
    add("X^T X of 2048 tokens, f32", Peak::f32, kTokens * k * k,
        [this] { add_outer_products(x_, kTokens, shape_.columns, statistics_.hessian, pool_); });
    finish_statistics();
    {
      LowerMatrix factor(shape_.columns);
      add(
          "factor, f64", Peak::f64, k * k * k / 3, [&] { factor_lower(factor, pool_); },
          [&] { damped_lower(factor); });
    }
    const auto feedback = factor_hessian(input_, pool_);
    require(feedback.has_value(), "the random inputs have no factor");
    const Ranges ranges = plain_ranges(input_);
    add("codes with feedback, f32", Peak::f32, n * k * k,
        [&] { choose_with_feedback(input_, ranges, *feedback, pool_); });
    add("method gptq, int4-g128", Peak::none, 0, [this] { choose_gptq(input_); });
    add("method gptq+, int4-g128", Peak::none, 0, [this] { choose_gptq_plus(input_); });
    return std::move(rows_);
  }

 private:
  enum class Peak { none, f32, f64 };

  void finish_statistics() {
    statistics_.tokens = kTokens;
    for (std::int64_t i = 0; i < shape_.columns; ++i) {
      statistics_.square_sum.push_back(
          statistics_.hessian[static_cast<std::size_t>(i * shape_.columns + i)]);
    }
  }

  void damped_lower(LowerMatrix& out) const {
    for (std::int64_t i = 0; i < shape_.columns; ++i) {
      const double* from = statistics_.hessian.data() + i * shape_.columns;
      for (std::int64_t j = 0; j < i; ++j) out.at(i, j) = from[j];
      out.at(i, i) = from[i] * 1.01;
    }
  }

  double peak_gflops(Peak peak) {
    return peak == Peak::f32 ? meter_.f32_gflops() : meter_.f64_gflops();
  }

  void add(
      const char* work, Peak peak, double operations, const std::function<void()>& body,
      const std::function<void()>& prepare = [] {}) {
    double limit = peak == Peak::none ? 0 : peak_gflops(peak);
    double seconds = 0;
    for (int run = 0; run < runs_; ++run) {
      prepare();
      const double took = seconds_of(body);
      seconds = run == 0 ? took : std::min(seconds, took);
    }
    Row row = {{"linear", std::to_string(shape_.rows) + " x " + std::to_string(shape_.columns)},
               {"threads", pool_.threads()},
               {"work", work},
               {"seconds", Cell(seconds, 3)}};
    if (peak != Peak::none) {
      limit = std::max(limit, peak_gflops(peak));
      const double speed = operations / seconds / 1e9;
      row.emplace_back("gflops", Cell(speed, 1));
      row.emplace_back("limit", Cell(limit, 1));
      row.emplace_back("share", Cell(speed / limit, 3));
    }
    rows_.push_back(std::move(row));
  }

  Shape shape_;
  ThreadPool pool_;
  int runs_;
  cpu::LimitMeter& meter_;
  std::vector<float> x_, weight_;
  InputStatistics statistics_;
  MethodInput input_;
  std::vector<Row> rows_;
};

ToolSpec spec() {
  ToolSpec tool;
  tool.name = "gptq_bench";
  tool.summary = "linear algebra and seconds of gptq and gptq+ for linears of random weights";
  tool.usage = {"4096 2048x5632 [-t 2] [-r 3]"};
  tool.max_positionals = 100;
  tool.options = {{.name = "threads",
                   .spellings = "-t",
                   .kind = OptionKind::integers,
                   .value_name = "N,...",
                   .fallback = "0",
                   .help = "threads; 0: one for each usable core",
                   .group = "Options",
                   .minimum = 0,
                   .maximum = 1024},
                  {.name = "repetitions",
                   .spellings = "-r",
                   .kind = OptionKind::integer,
                   .value_name = "N",
                   .fallback = "5",
                   .help = "runs of each piece of work, of which the best counts",
                   .group = "Options",
                   .minimum = 1,
                   .maximum = 10000}};
  return tool;
}

int run(const Options& options) {
  require(!options.positionals().empty(), "give widths of linears, or ROWSxCOLUMNS");
  Table table;
  for (const std::int64_t threads : options.integers("threads")) {
    const int count = threads > 0 ? static_cast<int>(threads) : usable_cores();
    cpu::LimitMeter meter(count, chosen_isa());
    for (const std::string& shape : options.positionals()) {
      GptqBench bench(parse_shape(shape), count, static_cast<int>(options.integer("repetitions")),
                      meter);
      for (const Row& row : bench.rows()) table.add(row);
    }
  }
  std::cerr << cpu_model_name() << '\n';
  std::cout << table.markdown();
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) { return leq::run_tool(leq::spec(), argc, argv, leq::run); }
