// How many windows of calibration text fit in a given time, and how a window's time is measured.
#include "quantize/run/steps.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "convert/hf_import.h"
#include "shared_data.h"
#include "tokenizer/tokenizer.h"

namespace leq {
namespace {

TEST(CalibrationSize, TakesTheMostWindowsThatFitTheTime) {
  // In 180 s: 32 windows of 5.6 s, 16 of 11.2 s, or 8 of 22.5 s.
  const std::vector<std::pair<double, std::int64_t>> cases = {
      {0.001, 32}, {5.6, 32}, {5.7, 16}, {11.2, 16}, {11.3, 8}, {22.5, 8}, {22.6, 8}, {1e9, 8}};
  for (const auto& [seconds, windows] : cases) {
    EXPECT_EQ(windows_within(180, seconds, kCalibrationWindows), windows);
  }
}

TEST(CalibrationSize, KeepsToTheTimeAndWastesNoneOfIt) {
  for (double budget = 1; budget < 2000; budget *= 1.7) {
    for (double seconds = 1e-4; seconds < 1e4; seconds *= 1.3) {
      const std::int64_t windows = windows_within(budget, seconds, {8, 32});
      EXPECT_TRUE(windows == 8 || windows == 16 || windows == 32) << windows;
      EXPECT_TRUE(windows == 8 || double(windows) * seconds <= budget);
      EXPECT_TRUE(windows == 32 || 2 * double(windows) * seconds > budget);
    }
  }
}

TEST(CalibrationSize, WhatCannotBeMeasuredIsFast) {
  EXPECT_EQ(windows_within(180, 0, kCalibrationWindows), 32);
  EXPECT_EQ(windows_within(180, -1, kFittedGateWindows), 16);
}

TEST(ChoosingSeconds, CountsEachWeightBesideAWindow) {
  const ModelConfig config = import_hf_config(*test::shared_path("models/storyteller"));
  const double w = double(config.width), q = double(config.heads * config.head_dim);
  const double kv = double(config.kv_heads * config.head_dim);
  const double f = double(config.layer(0).dense_mlp()->hidden);
  const double window = ((q + 2 * kv) * w + w * q + 3 * f * w) * 100;  // for 100 tokens
  const double squares = (q + 2 * kv) * w * w + w * q * q + 2 * f * w * w + w * f * f;
  EXPECT_NEAR(choosing_seconds(config, {.squares = 3}, 2, 100), 2 * 3 * squares / window, 1e-9);
  // The search uses ten rows of each of the seven weights.
  const double searched = 10 * (3 * w * w + q * q + 2 * w * w + f * f);
  EXPECT_NEAR(choosing_seconds(config, {.searched_squares = 5, .searched_rows = 10}, 2, 100),
              2 * 5 * searched / window, 1e-9);
  const double tokens = 10 * (3 * w + q + 2 * w + f);
  EXPECT_NEAR(choosing_seconds(config, {.searched_tokens = 7, .searched_rows = 10}, 2, 100),
              2 * 7 * tokens / window, 1e-9);
  EXPECT_EQ(choosing_seconds(config, {.squares = 3}, -1, 100), 0);
}

class WindowSeconds : public testing::Test {
 protected:
  WindowSeconds() : model_(import_hf(*test::shared_path("models/storyteller"))) {}

  double measure(std::int64_t length, const QuantizeOptions& options) const {
    CalibrationRequest request;
    request.samples = kTimedWindows;
    request.length = length;
    return measure_window_seconds(
        model_, calibration_data(request, Tokenizer(model_.tokenizer), model_.config.context),
        options);
  }

  ImportedModel model_;
};

// The work is 18 times as large, a ratio that noise on a busy machine would not cause.
TEST_F(WindowSeconds, GrowWithTheWindow) {
  QuantizeOptions options;
  options.threads = 1;
  const double brief = measure(16, options);
  EXPECT_GT(brief, 0);
  EXPECT_GT(measure(288, options), brief);
}

TEST_F(WindowSeconds, KeepToLimitsAndStops) {
  QuantizeOptions options;
  options.threads = 1;
  options.max_ram = 1 << 20;
  EXPECT_THROW(measure(64, options), Error);
  options.max_ram = 0;
  options.stop = [] { return true; };
  EXPECT_THROW(measure(64, options), Error);
}

}  // namespace
}  // namespace leq
