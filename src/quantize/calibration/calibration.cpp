#include "quantize/calibration/calibration.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/linear_algebra/matrix.h"

namespace leq {
namespace {

constexpr std::int64_t kFewestTokens = 16;

}  // namespace

CalibrationData calibration_data(const CalibrationRequest& request, const Tokenizer& tokenizer,
                                 std::int64_t context) {
  const bool built_in = request.text.empty();
  const std::string_view text = built_in ? built_in_calibration_text() : request.text;
  CalibrationData data;
  data.source = built_in ? "built-in" : request.source;
  data.text_sha256 = sha256_hex(text);
  data.seed = request.seed;
  const std::vector<Token> ids = tokenizer.encode(text, {.parse_special = false, .add_bos = false});
  const auto tokens = std::ssize(ids);
  require(tokens >= kFewestTokens, data.source, ": ", tokens,
          " tokens, calibration needs at least ", kFewestTokens, "; give a longer text with ",
          Setting{"calibration"});
  const std::int64_t front = tokenizer.add_bos() && tokenizer.bos() != kNoToken ? 1 : 0;
  data.length = std::min({request.length, context, tokens + front});
  if (data.length < request.length) {
    data.note = data.source + " has " + std::to_string(tokens) + " tokens, the model takes " +
                std::to_string(context) + ": windows of " + std::to_string(data.length) +
                " tokens instead of " + std::to_string(request.length);
  }
  const std::int64_t own = data.length - front;  // text tokens per window, without BOS
  Random random(request.seed);
  const std::int64_t places = tokens - own + 1;
  std::set<std::int64_t> starts;
  while (std::ssize(starts) < std::min(request.samples, places)) {
    starts.insert(random.below(static_cast<std::uint32_t>(places)));
  }
  for (const std::int64_t start : starts) {
    std::vector<Token> window;
    if (front > 0) window.push_back(tokenizer.bos());
    window.insert(window.end(), ids.begin() + start, ids.begin() + start + own);
    data.windows.push_back(std::move(window));
  }
  if (std::ssize(data.windows) < request.samples) {
    data.note += data.note.empty() ? data.source + " has " + std::to_string(tokens) + " tokens: "
                                   : std::string(", and ");
    data.note += std::to_string(data.windows.size()) + " different windows instead of " +
                 std::to_string(request.samples);
  }
  return data;
}

Json calibration_json(const CalibrationData& data) {
  return {{"text", printable(std::filesystem::path(data.source).filename().string(), 255)},
          {"text_sha256", data.text_sha256},
          {"samples", std::ssize(data.windows)},
          {"length", data.length},
          {"seed", data.seed}};
}

std::string_view built_in_calibration_text() {
  static const std::string text = std::string(calibration_prose()) + "\n\n" +
                                  std::string(calibration_articles()) + "\n\n" +
                                  std::string(calibration_stories());
  return text;
}

namespace {

// Reads or writes one window of the file, with as many system calls as necessary.
template <typename Bytes, typename Transfer>
void transfer_all(const std::filesystem::path& file, Bytes bytes, std::int64_t window,
                  const char* what, const Transfer& transfer) {
  auto offset = static_cast<off_t>(window) * static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t done = transfer(bytes, offset);
    if (done < 0 && errno == EINTR) continue;
    require(done > 0, ErrorKind::io, file.string(), ": cannot ", what, ": ", std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

}  // namespace

HiddenStates::HiddenStates(std::int64_t windows, std::int64_t numbers,
                           const std::filesystem::path& file)
    : windows_(windows), numbers_(numbers), file_(file) {
  if (file.empty()) {
    memory_.resize(static_cast<std::size_t>(windows * numbers));
    return;
  }
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(descriptor_ >= 0, ErrorKind::io, file.string(),
          ": cannot be made: ", std::strerror(errno));
  ::unlink(file.c_str());
  const auto bytes = static_cast<off_t>(windows * numbers) * static_cast<off_t>(sizeof(float));
  const int error = system::reserve_space(descriptor_, bytes);
  if (error == 0) return;
  ::close(descriptor_);
  fail(ErrorKind::io, file.string(), ": no room for the ", bytes,
       " bytes of the hidden states: ", std::strerror(error), "; raise ", Setting{"max_ram"},
       " or take fewer ", Setting{"samples"});
}

HiddenStates::~HiddenStates() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void HiddenStates::read(std::int64_t window, std::span<float> out) const {
  ensure(std::ssize(out) == numbers_, "hidden states: room for ", out.size(), " numbers of ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy_n(memory_.begin() + window * numbers_, numbers_, out.begin());
    return;
  }
  transfer_all(file_, std::as_writable_bytes(out), window, "read", [&](auto part, off_t offset) {
    return ::pread(descriptor_, part.data(), part.size(), offset);
  });
}

void HiddenStates::write(std::int64_t window, std::span<const float> values) {
  ensure(std::ssize(values) == numbers_, "hidden states: ", values.size(), " numbers, expected ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy(values.begin(), values.end(), memory_.begin() + window * numbers_);
    return;
  }
  transfer_all(file_, std::as_bytes(values), window, "write", [&](auto part, off_t offset) {
    return ::pwrite(descriptor_, part.data(), part.size(), offset);
  });
}

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

std::size_t resize_arrays(InputStatistics& statistics, std::int64_t columns, std::int64_t samples) {
  const auto k = static_cast<std::size_t>(columns);
  statistics.columns = columns;
  for (auto* floats : {&statistics.absmax, &statistics.largest_token}) floats->resize(k);
  for (auto* sums : {&statistics.abs_sum, &statistics.sum, &statistics.square_sum}) {
    sums->resize(k);
  }
  statistics.samples.resize(static_cast<std::size_t>(samples) * k);
  std::size_t bytes = 0;
  each_array(statistics, [&](auto values) { bytes += values.size_bytes(); });
  return bytes;
}

void fill_arrays(InputStatistics& statistics, std::span<const std::byte> bytes) {
  each_array(statistics, [&](auto values) {
    if (values.empty()) return;  // memcpy requires a valid pointer
    std::memcpy(values.data(), bytes.data(), values.size_bytes());
    bytes = bytes.subspan(values.size_bytes());
  });
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
  into.histogram.add(more.histogram);
  if (largest_of(more.largest_token) > largest_of(into.largest_token)) {
    into.largest_token = more.largest_token;
  }
  into.samples.insert(into.samples.end(), more.samples.begin(), more.samples.end());
  into.tokens += more.tokens;
}

}  // namespace leq
