// Histogram of |x| by the upper bits of the f32 value, with 32 bins for each power of two from
// 2^-32 to 2^32. Smaller and larger magnitudes are counted in the first or last bin.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/linear_algebra/dense.h"

namespace leq {

inline constexpr int kHistogramBins = 2048;

struct Histogram {
  std::array<std::uint64_t, kHistogramBins> counts = {};

  void add(float value, std::uint64_t times = 1);
  void add(const Histogram& more);
};

// The smallest |x| that is counted in a bin.
float histogram_edge(int bin);
// The smallest bin edge with at least `share` of all values below it.
float histogram_quantile(const Histogram& histogram, double share);

// Sum of the squared errors of all values if they are rounded to multiples of `peak` / 127 and
// clipped at `peak`. The values of a bin count as uniformly distributed; `absmax` is the largest.
double rounding_error(const Histogram& histogram, float absmax, float peak);

// The statistics that calibration gathers of the inputs X [T][K] of one linear. They are sufficient
// for every method, can be merged, and do not depend on the order of the windows.

// Selects the statistics to gather, because each costs memory and time.
struct StatisticsWanted {
  bool hessian = false;     // needs K * K doubles
  int sample_tokens = 512;  // rows of X to keep, evenly spaced; 0 = none
  TileShare share = {};     // the part of X^T X that this rank computes
};

struct InputStatistics {
  std::int64_t columns = 0;          // K
  std::int64_t tokens = 0;           // T
  std::vector<float> absmax;         // [K] max |x|
  std::vector<double> abs_sum;       // [K]
  std::vector<double> sum;           // [K]
  std::vector<double> square_sum;    // [K], the diagonal of X^T X
  Histogram histogram;               // of |x| in all columns together
  std::vector<float> largest_token;  // [K] the row of X with the largest |x|
  std::vector<double> hessian;       // [K][K] X^T X, both triangles; empty if not gathered
  std::vector<float> samples;        // [sample_tokens][K]

  std::int64_t sample_tokens() const { return columns == 0 ? 0 : std::ssize(samples) / columns; }
};

// Adds the rows x [T][K] of one window to the statistics. `first` is the index of x's first row
// among all `total` rows, which determines the sampled rows. Rows are added in order and threads
// divide the columns, so that the numbers do not depend on the number of threads. Throws Error
// naming `name` if x holds a value that is not finite, or K changes.
struct WindowRows {
  std::span<const float> x;  // [T][K]
  std::int64_t columns = 0;  // K
  std::int64_t first = 0;
  std::int64_t total = 0;
};
void accumulate(InputStatistics& statistics, const WindowRows& rows, const StatisticsWanted& wanted,
                std::string_view name, ThreadPool& pool);

// Updates only X^T X, for callers that gather the other statistics separately and merge them.
void add_hessian(InputStatistics& statistics, std::span<const float> x, const TileShare& share,
                 ThreadPool& pool);

// Converts to statistics of the inputs divided by scale [K]. The histogram is rebuilt from the
// samples, each weighted by the number of tokens between two samples, and from the largest value of
// each column, because this value may not be among the samples.
void divide_inputs(InputStatistics& statistics, std::span<const float> scale);

// Relative difference between two halves of the data, for the largest magnitudes and for the mean
// squares: mean over columns of |a - b| / (a + b); 0 = equal.
struct HalvesDifference {
  double absmax = 0;
  double square_mean = 0;
};
HalvesDifference compare_halves(const InputStatistics& first, const InputStatistics& second);

// Calls visit(span) for every array of the statistics, in the order of a statistics file.
template <class Statistics, class Visit>
void each_array(Statistics& statistics, const Visit& visit) {
  visit(std::span(statistics.absmax));
  visit(std::span(statistics.abs_sum));
  visit(std::span(statistics.sum));
  visit(std::span(statistics.square_sum));
  visit(std::span(statistics.histogram.counts));
  visit(std::span(statistics.largest_token));
  visit(std::span(statistics.samples));
  visit(std::span(statistics.hessian));
}

// Adds `more` to `into`, including X^T X if `more` has it; appends the samples. Throws Error if K
// differs.
void merge(InputStatistics& into, const InputStatistics& more);

}  // namespace leq
