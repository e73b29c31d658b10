#include "tools/bench/modes.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/rows/rows.h"
#include "backend/cpu/workers.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/tokenizer_import.h"
#include "model/open_model.h"
#include "model/session.h"
#include "runtime/make_backend.h"
#include "tools/bench/parts/synthetic.h"

namespace leq {
namespace {

constexpr std::int64_t kFusedRows = 256;
constexpr int kPassesAtOnce = 10;  // several, because a clock tick is long compared with one pass

template <class Pass>
double timed_ms(const Pass& pass) {
  const Stopwatch watch;
  for (int i = 0; i < kPassesAtOnce; ++i) pass();
  return 1e3 * watch.seconds() / kPassesAtOnce;
}

Rows filled_rows(Backend& backend, std::int64_t width) {
  Random random(1);
  std::vector<float> values(static_cast<std::size_t>(kFusedRows * width));
  for (float& value : values) value = random.normal();
  Rows rows = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, RowsFormat{});
  backend.assign(values, rows);
  return rows;
}

}  // namespace

Table bench_fusion(const std::string& path, int threads, int runs) {
  const Model model(path, {.mode = LoadMode::map});
  Workers workers(threads);
  Backend& backend = *workers.backend;
  const Weights weights = bind_weights(model.file(), model.config(), backend.memory());
  const LayerWeights& layer = weights.layers.front();
  const LayerLinear& linear = *layer.linears().front();
  require(is_coded(linear.act) && !has_moving_scale(linear.act), path,
          ": its inputs are not codes of their own rows");
  RowsFormat codes_alone = backend.layout().format_for(linear);
  codes_alone.values = false;
  const std::int64_t width = model.config().width;
  Rows x = filled_rows(backend, width);
  Rows plain = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, RowsFormat{});
  Rows coded = allocate_rows(backend.memory(), backend.layout(), kFusedRows, width, codes_alone);
  const RowsConsumer consumer = {.act_scale = linear.act_scale, .inv_smooth = linear.inv_smooth};
  const Norm& norm =
      std::visit([](const auto& mixer) -> const Norm& { return mixer.norm; }, layer.mixer);
  const cpu::RowKernels& kernels = cpu::row_kernels(chosen_isa());
  const auto fused = [&] { backend.norm(x, kFusedRows, norm, RowsFor(coded, consumer)); };
  const auto apart = [&] {
    backend.norm(x, kFusedRows, norm, RowsFor(plain, {.inv_smooth = linear.inv_smooth}));
    const RowsFor target(coded, consumer);
    workers.pool.run(kFusedRows, [&](std::int64_t t, int) {
      cpu::quantize_columns(kernels, plain.values + t * plain.value_stride, t, 0, width, target);
    });
  };
  Table table;
  for (int i = 0; i < runs; ++i) {
    const double fused_ms = timed_ms(fused), apart_ms = timed_ms(apart);
    table.add({{"rows", kFusedRows},
               {"columns", width},
               {"fused_ms", Cell(fused_ms, 5)},
               {"apart_ms", Cell(apart_ms, 5)}});
  }
  return table;
}

namespace {

std::int64_t peak_resident_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

Row bench_load(const std::string& path, LoadMode mode, int threads, int runs) {
  constexpr std::int64_t kPositions = 512;
  std::vector<double> load_seconds, first_token_seconds;
  std::uint64_t file_bytes = 0, plan_bytes = 0;
  Progress progress("loading", runs, "runs");
  for (int run = 0; run < runs; ++run) {
    progress.update(run);
    const auto backend = make_backend({"cpu", threads});
    const Stopwatch watch;
    const Model model(path, LoadOptions{.mode = mode});
    load_seconds.push_back(watch.seconds());
    RunLimits limits;
    limits.context = std::min(kPositions, model.config().context);
    limits.key_type = limits.value_type = default_kv_type(model.type());
    Session session(model, *backend, resolve_limits(limits, model.config()));
    const Token token = 1;
    session.feed(0, {&token, 1});
    first_token_seconds.push_back(watch.seconds());
    file_bytes = model.file().file_bytes();
    plan_bytes = session.plan().total();
  }
  const char* how = mode == LoadMode::map ? "map" : mode == LoadMode::read ? "read" : "automatic";
  return {{"model", path},
          {"threads", threads},
          {"loading", how},
          {"file_bytes", static_cast<std::int64_t>(file_bytes)},
          {"load_seconds", Cell(median(load_seconds), 3)},
          {"first_token_seconds", Cell(median(first_token_seconds), 3)},
          {"planned_bytes", static_cast<std::int64_t>(plan_bytes)},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

void write_synthetic(const Options& options) {
  const std::vector<std::string>& models = options.list("model");
  require(models.size() == 1 && is_synthetic(models[0]), "--write: expected one -m ",
          "synthetic:SHAPE:TYPE, found ", models.size(), " models, the first '",
          printable(models[0]), "'");
  ThreadPool pool(0);
  const std::vector<std::int64_t> depths = options.integers("n-depth");
  const SyntheticModel model(parse_synthetic(models[0]), std::ranges::max(depths), pool);
  std::optional<TokenizerSpec> tokenizer;
  if (options.given("write-tokenizer")) {
    tokenizer = import_tokenizer(options.text("write-tokenizer")).spec;
  }
  const std::string& path = options.text("write");
  std::cerr << path << ": " << human_bytes(model.write(path, tokenizer)) << '\n';
}

}  // namespace leq
