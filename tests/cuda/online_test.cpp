// Moving scales on the emulator, compared with OnlineScale on the host: every code, scale, sum and
// counter of 200 steps, for one row and for several rows. No step may wait for the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cuda/host/device_scales.h"
#include "cuda/layout/layout.h"
#include "cuda/sim/emulator.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kWidth = 200, kMaxTokens = 5;
constexpr std::int64_t kStride = float_stride(kWidth), kPadded = padded_columns(kWidth);
constexpr int kSumGroup = 64;

// Returns the inputs of one step: noise of varying size, with occasional spikes.
std::vector<float> step_inputs(std::mt19937& random, float& size) {
  std::normal_distribution<float> normal;
  size *= std::exp(0.1f * normal(random));
  std::vector<float> x(kMaxTokens * kStride);
  for (float& value : x) value = size * normal(random);
  if (random() % 10 == 0) x[random() % x.size()] *= 30;
  return x;
}

struct Block {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
};

// Quantizes one step on the host, with the host's moving scale.
Block quantize_on_host(const std::vector<float>& x, std::int64_t tokens, OnlineScale& scale) {
  Block block;
  const auto largest_of = [&](std::int64_t first, std::int64_t last) {
    float largest = 0;
    for (std::int64_t t = first; t < last; ++t) {
      for (std::int64_t k = 0; k < kWidth; ++k) {
        largest = std::max(largest, std::abs(x[static_cast<std::size_t>(t * kStride + k)]));
      }
    }
    return largest;
  };
  const bool dynamic = scale.dynamic();
  const float range = dynamic ? 0 : scale.begin(largest_of(0, tokens));
  std::uint64_t clipped = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float row_range = dynamic ? largest_of(t, t + 1) : range;
    block.scales.push_back(row_range / 127.0f);
    const float inverse = 127.0f / row_range;
    std::vector<std::int32_t> sums(kPadded / kSumGroup);
    for (std::int64_t k = 0; k < kPadded; ++k) {
      const float value = k < kWidth ? x[static_cast<std::size_t>(t * kStride + k)] : 0.0f;
      clipped += std::abs(value) > row_range;
      const float code = std::nearbyint(std::min(std::max(value * inverse, -127.0f), 127.0f));
      block.codes.push_back(static_cast<std::int8_t>(code));
      sums[static_cast<std::size_t>(k / kSumGroup)] += static_cast<int>(code);
    }
    block.sums.insert(block.sums.end(), sums.begin(), sums.end());
  }
  if (!dynamic) scale.end(clipped, static_cast<std::uint64_t>(tokens * kWidth));
  return block;
}

void expect_same_state(const OnlineState& found, const OnlineState& want) {
  EXPECT_EQ(found.range, want.range);
  EXPECT_EQ(found.step_largest, want.step_largest);
  EXPECT_EQ(found.recent, want.recent);
  EXPECT_EQ(found.next, want.next);
  EXPECT_EQ(found.reset_history, want.reset_history);
  EXPECT_EQ(found.window, want.window);
  EXPECT_EQ(found.counters.steps, want.counters.steps);
  EXPECT_EQ(found.counters.resets, want.counters.resets);
  EXPECT_EQ(found.counters.values, want.counters.values);
  EXPECT_EQ(found.counters.clipped, want.counters.clipped);
  EXPECT_EQ(found.counters.smallest, want.counters.smallest);
  EXPECT_EQ(found.counters.largest, want.counters.largest);
  EXPECT_EQ(found.counters.dynamic, want.counters.dynamic);
}

// Steps on the device that always use the same memory.
class Steps {
 public:
  explicit Steps(OnlineScale& scale) : scale_(scale), record_(scales_.of(scale)) {}
  ~Steps() { scale_.fetch_from_device(); }

  // Enqueues a step without waiting for the device.
  void run(const float* x, std::int64_t tokens) {
    rt::copy_on_device(x_.data(), x, kMaxTokens * kStride * sizeof(float), test_stream());
    OnlineArguments a;
    a.x = {x_.data(), kStride};
    a.tokens = tokens;
    a.width = kWidth;
    a.quantize.out = {
        codes_.data(), scales_there_.data(), sums_.data(), kPadded, 1, kPadded / kSumGroup, 0,
        kSumGroup};
    a.quantize.fault = {fault_.data(), 3};
    a.quantize.online = record_;
    a.largest = largest_.data();
    a.clipped = clipped_.data();
    if (tokens > 1) return launch_online(a, test_stream());
    launch_quantize({a.x, 1, kWidth, nullptr, a.quantize}, test_stream());
  }
  Block block(std::int64_t tokens) const {
    Block block = {codes_.host(), scales_there_.host(), sums_.host()};
    block.codes.resize(static_cast<std::size_t>(tokens * kPadded));
    block.scales.resize(static_cast<std::size_t>(tokens));
    block.sums.resize(static_cast<std::size_t>(tokens * kPadded / kSumGroup));
    return block;
  }
  unsigned long long fault() const { return fault_.host()[0]; }

 private:
  OnlineScale& scale_;
  DeviceScales scales_{0, test_stream()};
  OnlineRecord* record_;
  const DeviceArray<float> x_{kMaxTokens * kStride}, scales_there_{kMaxTokens};
  const DeviceArray<std::int8_t> codes_{kMaxTokens * kPadded};
  const DeviceArray<std::int32_t> sums_{kMaxTokens * kPadded / kSumGroup};
  const DeviceArray<float> largest_{kMaxTokens};
  const DeviceArray<unsigned> clipped_{kMaxTokens};
  const DeviceArray<unsigned long long> fault_{std::vector<unsigned long long>{kNoFault}};
};

TEST(OnlineOnDevice, TwoHundredStepsGiveTheBitsOfTheHost) {
  for (const OnlineMode mode : {OnlineMode::safe, OnlineMode::streaming}) {
    for (const std::uint64_t seed : {0, 1, 2}) {
      simt::schedule().seed = seed;
      std::mt19937 random(static_cast<unsigned>(seed) + 5);
      const OnlineOptions options = {.window = seed == 1 ? 5 : 64, .mode = mode};
      OnlineScale want(options);
      OnlineScale moved(options);
      Steps steps(moved);
      float size = 1;
      for (int step = 0; step < 200; ++step) {
        const auto x = step_inputs(random, size);
        const std::int64_t tokens = step % 3 == 0 ? 1 : 1 + step % kMaxTokens;
        const DeviceArray<float> there(x);
        steps.run(there.data(), tokens);
        const Block expected = quantize_on_host(x, tokens, want), found = steps.block(tokens);
        ASSERT_EQ(found.scales, expected.scales) << "step " << step;
        ASSERT_EQ(found.codes, expected.codes) << "step " << step;
        ASSERT_EQ(found.sums, expected.sums) << "step " << step;
        if (step % 20 == 0) expect_same_state(moved.save(), want.save());
      }
      expect_same_state(moved.save(), want.save());
      EXPECT_EQ(moved.counters().steps == 200, !moved.dynamic());
    }
  }
  simt::schedule() = {};
}

// Inputs that quadruple in each step reset the scale until it falls back to one scale per row.
TEST(OnlineOnDevice, GivesUpWhereTheHostDoesWithoutAskingIt) {
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{4}}) {
    OnlineScale want({.mode = OnlineMode::streaming}), moved({.mode = OnlineMode::streaming});
    Steps steps(moved);
    std::mt19937 random(9);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> inputs;
    float size = 1;
    for (int step = 0; step < 15; ++step, size *= 4) {
      inputs.emplace_back(kMaxTokens * kStride);
      for (float& value : inputs.back()) value = size * normal(random);
    }
    std::vector<float> all;
    for (const auto& x : inputs) all.insert(all.end(), x.begin(), x.end());
    const DeviceArray<float> there(all);
    Block expected;
    for (std::size_t step = 0; step < inputs.size(); ++step) {
      steps.run(there.data() + step * kMaxTokens * kStride, tokens);
      expected = quantize_on_host(inputs[step], tokens, want);
    }
    const Block found = steps.block(tokens);  // the first synchronization
    EXPECT_EQ(found.scales, expected.scales);
    EXPECT_EQ(found.codes, expected.codes);
    EXPECT_TRUE(want.dynamic());
    expect_same_state(moved.save(), want.save());
  }
}

TEST(OnlineOnDevice, StepsWithABadRowAndThoseBehindThemAreForgotten) {
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{4}}) {
    OnlineScale scale;
    const DeviceArray<float> good(std::vector<float>(kMaxTokens * kStride, 2.0f));
    std::vector<float> numbers(kMaxTokens * kStride, 3.0f);
    numbers[static_cast<std::size_t>((tokens - 1) * kStride + 17)] = std::nanf("");
    const DeviceArray<float> bad(numbers);
    Steps steps(scale);
    steps.run(good.data(), tokens);
    const OnlineState before = scale.save();
    EXPECT_EQ(before.counters.steps, 1u);
    steps.run(bad.data(), tokens);
    steps.run(good.data(), tokens);
    EXPECT_EQ(steps.fault(), 3ull << 32 | static_cast<unsigned long long>(tokens - 1));
    expect_same_state(scale.save(), before);
  }
}

TEST(OnlineOnDevice, StatesMoveToTheDeviceAndBack) {
  OnlineScale scale, want;
  const std::vector<float> x(kMaxTokens * kStride, 2.0f);
  const DeviceArray<float> there(x);
  for (int round = 0; round < 3; ++round) {
    scale.begin(5.0f);  // on the host, to which the state was copied back
    scale.end(0, 10);
    want.begin(5.0f);
    want.end(0, 10);
    Steps steps(scale);
    steps.run(there.data(), 3);
    quantize_on_host(x, 3, want);
    expect_same_state(scale.save(), want.save());
    OnlineState other = scale.save();
    other.range = 7;
    scale.restore(other);
    want.restore(other);
    steps.run(there.data(), 1);
    quantize_on_host(x, 1, want);
    expect_same_state(scale.save(), want.save());
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
