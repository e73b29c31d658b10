// Tests which tokens calibration stores unchanged.
#include "quantize/calibration/calibration.h"

#include <gtest/gtest.h>

#include <set>

namespace leq {
namespace {

// Returns the stored rows, which are identified by their only column.
std::vector<std::int64_t> sampled_rows(std::int64_t windows, std::int64_t length, int samples) {
  ThreadPool pool(1);
  InputStatistics statistics;
  for (std::int64_t window = 0; window < windows; ++window) {
    std::vector<float> x;
    for (std::int64_t t = 0; t < length; ++t) x.push_back(static_cast<float>(window * length + t));
    accumulate(statistics,
               {.x = x, .columns = 1, .first = window * length, .total = windows * length},
               {.sample_tokens = samples}, "x", pool);
  }
  return {statistics.samples.begin(), statistics.samples.end()};
}

TEST(Statistics, SamplesMeetEveryPlaceOfAWindowAsOftenAsItComes) {
  for (const auto& [windows, length] : {std::pair{64, 512}, {128, 512}, {256, 128}, {30, 300}}) {
    const auto rows = sampled_rows(windows, length, 512);
    ASSERT_EQ(rows.size(), 512u);
    std::int64_t first_tokens = 0;
    std::vector<int> eighths(8);
    for (const std::int64_t row : rows) {
      if (row % length == 0) ++first_tokens;
      ++eighths[static_cast<std::size_t>(row % length * 8 / length)];
    }
    EXPECT_GE(first_tokens, 1) << length;
    EXPECT_LE(first_tokens, 2 * 512 / length + 1) << length;
    for (const int count : eighths) EXPECT_NEAR(count, 64, 16) << length;
  }
}

TEST(Statistics, SamplesAreSpreadOverAllWindows) {
  const auto rows = sampled_rows(64, 100, 640);
  std::vector<int> of_window(64);
  for (const std::int64_t row : rows) ++of_window[static_cast<std::size_t>(row / 100)];
  for (const int count : of_window) EXPECT_EQ(count, 10);
}

TEST(Statistics, AllTokensAreSamplesWhereThereAreFew) {
  const auto rows = sampled_rows(3, 7, 512);
  EXPECT_EQ(std::set<std::int64_t>(rows.begin(), rows.end()).size(), 21u);
}

}  // namespace
}  // namespace leq
