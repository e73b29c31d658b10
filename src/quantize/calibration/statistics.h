// The statistics that calibration keeps of the inputs X [T][K] of one linear: sufficient for every
// method, mergeable, and independent of the order in which whole windows were added.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/calibration/histogram.h"
#include "quantize/linear_algebra/tile_share.h"

namespace leq {

// The statistics to gather; each has a cost in memory and time.
struct StatisticsWanted {
  bool hessian = false;     // K * K doubles
  int sample_tokens = 512;  // rows of X kept unchanged, spread evenly; 0 = none
  TileShare share = {};     // this rank's part of X^T X, where several ranks divide it
};

struct InputStatistics {
  std::int64_t columns = 0;          // K
  std::int64_t tokens = 0;           // T
  std::vector<float> absmax;         // [K] max |x|
  std::vector<double> abs_sum;       // [K]
  std::vector<double> sum;           // [K]
  std::vector<double> square_sum;    // [K], the diagonal of X^T X
  Histogram histogram;               // of |x| over all columns
  std::vector<float> largest_token;  // [K] the row of X with the largest |x|
  std::vector<double> hessian;       // [K][K] X^T X, both triangles; empty where not wanted
  std::vector<float> samples;        // [sample_tokens][K]

  std::int64_t sample_tokens() const { return columns == 0 ? 0 : std::ssize(samples) / columns; }
};

// statistics += rows x [T][K] of one window. `first` is the index of x's first row among all
// `total` rows, for spreading the samples. Rows are added in order and columns are divided among
// threads: the same numbers for any number of threads. Throws Error naming `name` where x holds a
// value that is not finite, or K changes.
struct WindowRows {
  std::span<const float> x;  // [T][K]
  std::int64_t columns = 0;  // K
  std::int64_t first = 0;
  std::int64_t total = 0;
};
void accumulate(InputStatistics& statistics, const WindowRows& rows, const StatisticsWanted& wanted,
                std::string_view name, ThreadPool& pool);

// Adds only to X^T X: for callers that gather the other statistics separately and merge them.
void add_hessian(InputStatistics& statistics, std::span<const float> x, const TileShare& share,
                 ThreadPool& pool);

// Converts to statistics of the inputs divided by scale [K]. The histogram is rebuilt from the
// samples, each weighted by the number of tokens between two samples, and from the largest value of
// each column, which the samples may not contain.
void divide_inputs(InputStatistics& statistics, std::span<const float> scale);

// Difference between two halves of the data: mean over columns of |a - b| / (a + b), 0 = equal, of
// the largest magnitudes and of the mean squares.
struct HalvesDifference {
  double absmax = 0;
  double square_mean = 0;
};
HalvesDifference compare_halves(const InputStatistics& first, const InputStatistics& second);

// Calls visit(span) for every array of the statistics, in the order in which files store them.
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

// into += more, both of one K, with X^T X where `more` has it; samples are appended. Throws Error
// where K differs.
void merge(InputStatistics& into, const InputStatistics& more);

}  // namespace leq
