#include "quantize/calibration/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "quantize/linear_algebra/dense.h"

namespace leq {
namespace {

constexpr int kBinBits = 5;                              // mantissa bits that select a bin
constexpr std::uint32_t kShift = 23 - kBinBits;          // shift from an f32's bits to its bin
constexpr int kFirstBin = (127 - 32) * (1 << kBinBits);  // bin of 2^-32 if the bin of 0.0 is 0

int bin_of(float value) {
  const auto upper =
      static_cast<int>((std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) >> kShift);
  return std::clamp(upper - kFirstBin, 0, kHistogramBins - 1);
}

// Integral from 0 to x of the squared error of rounding to the nearest n * step, n = 0 ... 127.
double error_below(double x, double step) {
  const double n = std::min(127.0, std::nearbyint(x / step));
  const double rest = x - n * step;
  return n * step * step * step / 12 + rest * rest * rest / 3;
}

}  // namespace

void Histogram::add(float value, std::uint64_t times) {
  counts[static_cast<std::size_t>(bin_of(value))] += times;
}

void Histogram::add(const Histogram& more) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += more.counts[i];
}

float histogram_edge(int bin) {
  if (bin == 0) return 0.0f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin + kFirstBin) << kShift);
}

float histogram_quantile(const Histogram& histogram, double share) {
  std::uint64_t all = 0;
  for (const std::uint64_t count : histogram.counts) all += count;
  const double wanted = share * static_cast<double>(all);
  std::uint64_t below = 0;
  for (int bin = 0; bin < kHistogramBins; ++bin) {
    if (static_cast<double>(below) >= wanted) return histogram_edge(bin);
    below += histogram.counts[static_cast<std::size_t>(bin)];
  }
  return histogram_edge(kHistogramBins);
}

double rounding_error(const Histogram& histogram, float absmax, float peak) {
  const double step = static_cast<double>(peak) / 127;
  double total = 0;
  for (int bin = 0; bin < kHistogramBins; ++bin) {
    const std::uint64_t count = histogram.counts[static_cast<std::size_t>(bin)];
    if (count == 0) continue;
    const double first = static_cast<double>(histogram_edge(bin));
    const bool last = bin == kHistogramBins - 1 || histogram_edge(bin + 1) > absmax;
    const double end = static_cast<double>(last ? absmax : histogram_edge(bin + 1));
    double mean = first - std::min(127.0, std::nearbyint(first / step)) * step;
    mean *= mean;
    if (end > first) mean = (error_below(end, step) - error_below(first, step)) / (end - first);
    total += static_cast<double>(count) * mean;
  }
  return total;
}

namespace {

constexpr std::int64_t kTaskColumns = 64;

void start(InputStatistics& statistics, std::int64_t columns) {
  const auto k = static_cast<std::size_t>(columns);
  statistics.columns = columns;
  statistics.absmax.assign(k, 0.0f);
  statistics.abs_sum.assign(k, 0.0);
  statistics.sum.assign(k, 0.0);
  statistics.square_sum.assign(k, 0.0);
}

void add_columns(InputStatistics& statistics, const WindowRows& rows, std::int64_t first,
                 std::int64_t last, Histogram& histogram) {
  const std::int64_t tokens = std::ssize(rows.x) / rows.columns;
  const auto count = static_cast<std::size_t>(last - first);
  std::array<float, kTaskColumns> absmax = {};
  std::array<double, kTaskColumns> abs_sum = {}, sum = {}, square_sum = {};
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* const row = rows.x.data() + t * rows.columns + first;
    for (std::size_t k = 0; k < count; ++k) {
      const double wide = static_cast<double>(row[k]);
      absmax[k] = std::max(absmax[k], std::abs(row[k]));
      abs_sum[k] += std::abs(wide);
      sum[k] += wide;
      square_sum[k] += wide * wide;
      histogram.add(row[k]);
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t column = static_cast<std::size_t>(first) + k;
    statistics.absmax[column] = std::max(statistics.absmax[column], absmax[k]);
    statistics.abs_sum[column] += abs_sum[k];
    statistics.sum[column] += sum[k];
    statistics.square_sum[column] += square_sum[k];
  }
}

// Divides all rows into `samples` runs of nearly equal length and selects one row of each run. The
// offset in the run starts at row 0 and advances by the golden ratio. With a fixed offset, runs
// that divide a window would never sample its first token, whose values are often the largest.
bool is_sample(std::int64_t row, std::int64_t samples, std::int64_t total) {
  constexpr std::uint32_t kGoldenShare = 2654435769u;  // golden ratio times 2^32
  const std::int64_t run = row * samples / total;
  const std::int64_t first = (run * total + samples - 1) / samples;
  const std::int64_t next = ((run + 1) * total + samples - 1) / samples;
  const std::uint32_t place = static_cast<std::uint32_t>(run) * kGoldenShare;
  return row == first + ((next - first) * static_cast<std::int64_t>(place) >> 32);
}

void add_samples(InputStatistics& statistics, const WindowRows& rows, std::int64_t wanted) {
  const std::int64_t tokens = std::ssize(rows.x) / rows.columns;
  const std::int64_t samples = std::min(wanted, rows.total);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t row = rows.first + t;
    if (statistics.sample_tokens() >= wanted) return;
    if (!is_sample(row, samples, rows.total)) continue;
    const auto from = rows.x.begin() + t * rows.columns;
    statistics.samples.insert(statistics.samples.end(), from, from + rows.columns);
  }
}

float largest_of(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// On ties, the first token with the largest value is kept.
void keep_largest_token(InputStatistics& statistics, const WindowRows& rows) {
  float largest = largest_of(statistics.largest_token);
  const auto columns = static_cast<std::size_t>(rows.columns);
  for (std::size_t first = 0; first < rows.x.size(); first += columns) {
    const auto row = rows.x.subspan(first, columns);
    const float of_row = largest_of(row);
    if (!statistics.largest_token.empty() && of_row <= largest) continue;
    largest = of_row;
    statistics.largest_token.assign(row.begin(), row.end());
  }
}

void require_finite(const WindowRows& rows, std::string_view name) {
  for (std::size_t i = 0; i < rows.x.size(); ++i) {
    if (std::isfinite(rows.x[i])) continue;
    const auto k = static_cast<std::size_t>(rows.columns);
    fail("calibration: input of ", name, ", token ", rows.first + static_cast<std::int64_t>(i / k),
         ", column ", i % k, " is ", rows.x[i],
         "; the checkpoint computes numbers that are not finite, so there is nothing to calibrate");
  }
}

double difference(double a, double b) { return a + b > 0 ? std::abs(a - b) / (a + b) : 0.0; }

}  // namespace

void accumulate(InputStatistics& statistics, const WindowRows& rows, const StatisticsWanted& wanted,
                std::string_view name, ThreadPool& pool) {
  const std::int64_t columns = rows.columns;
  if (statistics.columns == 0) start(statistics, columns);
  ensure(statistics.columns == columns && std::ssize(rows.x) % columns == 0,
         "calibration: input of ", name, ": expected rows of ", statistics.columns, ", found ",
         rows.x.size(), " numbers in rows of ", columns);
  require_finite(rows, name);
  const std::int64_t tokens = std::ssize(rows.x) / columns;
  std::vector<Histogram> histograms(static_cast<std::size_t>(pool.threads()));
  pool.run((columns + kTaskColumns - 1) / kTaskColumns, [&](std::int64_t task, int worker) {
    const std::int64_t first = task * kTaskColumns;
    add_columns(statistics, rows, first, std::min(columns, first + kTaskColumns),
                histograms[static_cast<std::size_t>(worker)]);
  });
  for (const Histogram& part : histograms) statistics.histogram.add(part);
  keep_largest_token(statistics, rows);
  if (wanted.sample_tokens > 0) add_samples(statistics, rows, wanted.sample_tokens);
  if (wanted.hessian) add_hessian(statistics, rows.x, wanted.share, pool);
  statistics.tokens += tokens;
}

void add_hessian(InputStatistics& statistics, std::span<const float> x, const TileShare& share,
                 ThreadPool& pool) {
  const std::int64_t columns = statistics.columns;
  std::vector<double>& h = statistics.hessian;
  h.resize(static_cast<std::size_t>(columns * columns));
  add_outer_products(x, std::ssize(x) / columns, columns, h, pool, share);
}

void divide_inputs(InputStatistics& statistics, std::span<const float> scale) {
  const auto columns = static_cast<std::size_t>(statistics.columns);
  ensure(scale.size() == columns, "statistics: ", scale.size(), " scales for ", columns,
         " columns");
  statistics.histogram = {};
  for (std::size_t k = 0; k < columns; ++k) {
    const double s = static_cast<double>(scale[k]);
    statistics.absmax[k] = statistics.absmax[k] / scale[k];
    statistics.abs_sum[k] /= s;
    statistics.sum[k] /= s;
    statistics.square_sum[k] /= s * s;
    statistics.largest_token[k] /= scale[k];
    statistics.histogram.add(statistics.absmax[k]);
    for (std::size_t j = 0; j < columns && !statistics.hessian.empty(); ++j) {
      statistics.hessian[k * columns + j] /= s * static_cast<double>(scale[j]);
    }
  }
  const std::int64_t samples = std::max<std::int64_t>(1, statistics.sample_tokens());
  const auto times =
      static_cast<std::uint64_t>(std::max<std::int64_t>(1, statistics.tokens / samples));
  for (std::size_t i = 0; i < statistics.samples.size(); ++i) {
    statistics.samples[i] /= scale[i % columns];
    statistics.histogram.add(statistics.samples[i], times);
  }
}

HalvesDifference compare_halves(const InputStatistics& first, const InputStatistics& second) {
  ensure(first.columns == second.columns && first.columns > 0, "statistics: halves of ",
         first.columns, " and ", second.columns, " columns");
  HalvesDifference sum;
  for (std::size_t k = 0; k < first.absmax.size(); ++k) {
    sum.absmax +=
        difference(static_cast<double>(first.absmax[k]), static_cast<double>(second.absmax[k]));
    sum.square_mean += difference(first.square_sum[k] / static_cast<double>(first.tokens),
                                  second.square_sum[k] / static_cast<double>(second.tokens));
  }
  const auto columns = static_cast<double>(first.columns);
  return {sum.absmax / columns, sum.square_mean / columns};
}

void merge(InputStatistics& into, const InputStatistics& more) {
  if (into.columns == 0) {
    into = more;
    return;
  }
  ensure(into.columns == more.columns, "statistics: inputs of ", into.columns, " columns and of ",
         more.columns, " cannot be joined");
  for (std::size_t k = 0; k < into.absmax.size(); ++k) {
    into.absmax[k] = std::max(into.absmax[k], more.absmax[k]);
    into.abs_sum[k] += more.abs_sum[k];
    into.sum[k] += more.sum[k];
    into.square_sum[k] += more.square_sum[k];
  }
  for (std::size_t i = 0; i < more.hessian.size(); ++i) into.hessian[i] += more.hessian[i];
  into.histogram.add(more.histogram);
  if (largest_of(more.largest_token) > largest_of(into.largest_token)) {
    into.largest_token = more.largest_token;
  }
  into.samples.insert(into.samples.end(), more.samples.begin(), more.samples.end());
  into.tokens += more.tokens;
}

}  // namespace leq
