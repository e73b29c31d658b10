// Compares the moving scale of act online with its definition: rise, fall, reset and fallback.
#include "backend/online_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr OnlineOptions kSafe = {};
constexpr OnlineOptions kStreaming = {.mode = OnlineMode::streaming};

// Runs one step with 1000 numbers, of which `clipped` are out of range.
float step(OnlineScale& scale, float largest, std::uint64_t clipped = 0) {
  const float range = scale.begin(largest);
  scale.end(clipped, 1000);
  return range;
}

// Computes the scale of safe mode by its definition, in double over the whole history.
double naive_range(const std::vector<float>& largest, double decay, std::size_t window) {
  double range = largest[0];
  for (std::size_t t = 1; t < largest.size(); ++t) {
    double recent = 0;
    for (std::size_t i = t + 1 >= window ? t + 1 - window : 0; i <= t; ++i) {
      recent = std::max<double>(recent, largest[i]);
    }
    range = std::max<double>(decay * range + (1 - decay) * recent, largest[t]);
  }
  return range;
}

TEST(OnlineScale, FollowsItsDefinition) {
  Random random(1);
  for (const int window : {1, 3, 64}) {
    for (const float decay : {0.0f, 0.5f, 0.9f}) {
      OnlineScale scale({.decay = decay, .window = window});
      std::vector<float> seen;
      for (int t = 0; t < 200; ++t) {
        seen.push_back(0.1f + std::abs(random.normal()));
        const double want = naive_range(seen, double{decay}, static_cast<std::size_t>(window));
        // each step has one f32 rounding
        EXPECT_NEAR(step(scale, seen.back()), want, 1e-6 * want) << t;
      }
    }
  }
}

TEST(OnlineScale, WithoutMemoryItIsTheLargestOfTheStep) {
  Random random(2);
  OnlineScale scale({.decay = 0, .window = 1});
  for (int t = 0; t < 300; ++t) {
    const float largest = std::exp(4.0f * random.normal());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(step(scale, largest)),
              std::bit_cast<std::uint32_t>(std::max(largest, 1e-5f)));
  }
}

TEST(OnlineScale, ConstantInputsKeepTheRangeToTheBit) {
  for (const OnlineOptions& options : {kSafe, kStreaming}) {
    for (const float largest : {1.0f, 0.1f, 3.3333f, 17321.7f}) {
      OnlineScale scale(options);
      for (int t = 0; t < 300; ++t) ASSERT_EQ(step(scale, largest), largest) << t;
      EXPECT_EQ(scale.counters().smallest, largest);
      EXPECT_EQ(scale.counters().largest, largest);
    }
  }
}

TEST(OnlineScale, SafeModeNeverClips) {
  Random random(3);
  OnlineScale scale(kSafe);
  float growing = 0.01f;
  for (int t = 0; t < 500; ++t) {
    growing *= 1.02f;
    const float largest = random.below(20) == 0 ? 100 * growing : growing;
    ASSERT_GE(step(scale, largest), largest);
  }
  EXPECT_EQ(scale.counters().resets, 0u);
}

TEST(OnlineScale, AStepDownByTwoDecaysToATenthAboveInTheStatedTime) {
  // The old peak leaves the window after 64 steps; afterwards the range decays until 0.9^n <= 0.1.
  const int bound = 64 + static_cast<int>(std::ceil(std::log(0.1) / std::log(0.9)));
  OnlineScale scale(kSafe);
  for (int t = 0; t < 100; ++t) step(scale, 2.0f);
  int steps = 1;
  while (step(scale, 1.0f) > 1.1f) ++steps;
  EXPECT_LE(steps, bound);
  EXPECT_GT(steps, 64);  // the peak stays while it is in the window
}

TEST(OnlineScale, StreamingQuantizesWithWhatTheStepsBeforeSay) {
  OnlineScale scale(kStreaming);
  EXPECT_EQ(step(scale, 2.0f), 2.0f);
  EXPECT_EQ(step(scale, 4.0f), 2.0f);
  EXPECT_FLOAT_EQ(step(scale, 4.0f), 0.9f * 2.0f + 0.1f * 4.0f);
  EXPECT_EQ(scale.counters().resets, 0u);
}

TEST(OnlineScale, MoreThanOneInAThousandClippedResetsTheRange) {
  OnlineScale scale(kStreaming);
  step(scale, 1.0f);
  step(scale, 5.0f, 1);  // exactly a thousandth is tolerated
  EXPECT_EQ(scale.counters().resets, 0u);
  step(scale, 7.0f, 2);
  EXPECT_EQ(scale.counters().resets, 1u);
  EXPECT_EQ(step(scale, 7.0f), 7.0f);
  EXPECT_EQ(scale.counters().clipped, 3u);
  EXPECT_EQ(scale.counters().values, 4000u);
  EXPECT_EQ(scale.counters().steps, 4u);
  EXPECT_DOUBLE_EQ(scale.counters().clipped_share(), 3.0 / 4000.0);
  // The window was cleared, so a larger step before the reset does not raise the range.
  OnlineScale emptied(kStreaming);
  step(emptied, 1.0f);
  step(emptied, 100.0f);
  step(emptied, 50.0f, 2);
  EXPECT_EQ(step(emptied, 50.0f), 50.0f);
  EXPECT_EQ(step(emptied, 50.0f), 50.0f);
}

TEST(OnlineScale, TooManyResetsGiveUpFromTheNextStep) {
  OnlineScale scale(kStreaming);
  float largest = 1.0f;
  step(scale, largest);
  for (int resets = 1; resets <= OnlineScale::kMaxResets + 1; ++resets) {
    EXPECT_FALSE(scale.dynamic());
    step(scale, largest *= 4, 500);
  }
  EXPECT_TRUE(scale.dynamic());
  EXPECT_TRUE(scale.counters().dynamic);
  EXPECT_EQ(scale.counters().resets, 9u);
}

TEST(OnlineScale, ResetsLongAgoAreForgotten) {
  OnlineScale scale(kStreaming);
  float largest = 1.0f;
  for (int resets = 0; resets < 40; ++resets) {
    step(scale, largest *= 1.5f, resets == 0 ? 0 : 500);
    for (int t = 0; t < 9; ++t) step(scale, largest);  // 7 resets in 64 steps
  }
  EXPECT_FALSE(scale.dynamic());
  EXPECT_EQ(scale.counters().resets, 39u);
}

TEST(OnlineScale, ASavedStateGoesOnToTheBit) {
  for (const OnlineOptions& options : {kSafe, kStreaming}) {
    Random random(4);
    OnlineScale scale(options);
    for (int t = 0; t < 77; ++t) step(scale, std::abs(random.normal()), random.below(3));
    const OnlineScale::State saved = scale.save();
    std::vector<float> largest, want;
    for (int t = 0; t < 200; ++t) largest.push_back(std::abs(random.normal()));
    for (const float m : largest) want.push_back(step(scale, m));
    OnlineScale other(options);
    step(other, 1000.0f);
    other.restore(saved);
    for (std::size_t t = 0; t < want.size(); ++t) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(step(other, largest[t])),
                std::bit_cast<std::uint32_t>(want[t]));
    }
    EXPECT_EQ(other.counters().clipped, scale.counters().clipped);
  }
}

TEST(OnlineScale, RefusesOptionsAndStatesOutOfRange) {
  EXPECT_THROW(OnlineScale({.decay = 1.0f}), Error);
  EXPECT_THROW(OnlineScale({.decay = -0.1f}), Error);
  EXPECT_THROW(OnlineScale({.decay = std::nanf("")}), Error);
  EXPECT_THROW(OnlineScale({.window = 0}), Error);
  EXPECT_THROW(OnlineScale({.window = 65}), Error);
  OnlineScale long_window(kSafe);
  for (int t = 0; t < 10; ++t) step(long_window, 1.0f);
  OnlineScale short_window({.window = 4});
  EXPECT_THROW(short_window.restore(long_window.save()), Error);
  OnlineScale::State broken = long_window.save();
  broken.range = std::numeric_limits<float>::infinity();
  EXPECT_THROW(long_window.restore(broken), Error);
}

}  // namespace
}  // namespace leq
