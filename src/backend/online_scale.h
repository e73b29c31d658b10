// The scale of act online: an exponential mean of one linear's recent largest inputs that rises
// fast and falls slowly (docs/quantization.md; LLMEasyQuant, eq. 1 and 9, corrected).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "tensor/weight_layout.h"

namespace leq {

struct OnlineOptions {
  float decay = 0.9f;  // a: weight of the old range in each step, in [0, 1)
  int window = 64;     // steps whose largest |x| counts, 1 to 64
  OnlineMode mode = OnlineMode::safe;
};

// Statistics of one linear's scale, for reports.
struct OnlineCounters {
  std::uint64_t steps = 0;
  std::uint64_t resets = 0;   // steps after which the range was reset upwards
  std::uint64_t values = 0;   // numbers quantized
  std::uint64_t clipped = 0;  // quantized numbers that were outside the range
  float smallest = 0;         // smallest range so far; 0 before the first step
  float largest = 0;
  bool dynamic = false;  // true: one dynamic scale per row is used instead

  double clipped_share() const {
    return values == 0 ? 0 : static_cast<double>(clipped) / static_cast<double>(values);
  }
};

// The complete state of a scale; after a copy is restored, the same ranges follow, bit for bit.
struct OnlineState {
  static constexpr int kLongestWindow = 64;

  float range = 0;                                // r
  float step_largest = 0;                         // m of the current step, between begin and end
  std::uint32_t recent = 0;                       // number of used entries of the window
  std::uint32_t next = 0;                         // index of the next entry to write
  std::uint64_t reset_history = 0;                // bit i: the step i steps ago was a reset
  std::array<float, kLongestWindow> window = {};  // m of the last steps, a ring buffer
  OnlineCounters counters;
};

// The two halves of a step, as described for OnlineScale; they are also compiled for GPUs.
constexpr float begin_step(OnlineState& state, const OnlineOptions& options, float largest);
constexpr void end_step(OnlineState& state, const OnlineOptions& options, std::uint64_t clipped,
                        std::uint64_t values);

// Access to an OnlineState in device memory, which the device's kernels update themselves. A
// backend must outlive the scales with which it has quantized.
class DeviceScale {
 public:
  virtual ~DeviceScale() = default;
  virtual OnlineState fetch() = 0;                   // the state after all operations so far; waits
  virtual void store(const OnlineState& state) = 0;  // sets the state for later operations; waits
};

// A step is the rows of one batch. The quantization of a step with the largest |x| = m is:
//   r = begin(m);  s = r / 127, inv = 127 / r for all rows;  end(clipped, values)
class OnlineScale {
 public:
  // A step in which more than this share of numbers is clipped resets the range.
  static constexpr double kResetShare = 1e-3;
  // With more resets than this in 64 steps, dynamic scales are used, because inputs vary too much.
  static constexpr int kMaxResets = 8;
  static constexpr float kSmallestRange = 1e-5f;  // eps0
  using State = OnlineState;

  // Throws Error if an option is out of range.
  explicit OnlineScale(const OnlineOptions& options = {});

  // If true, the caller quantizes by row and calls neither begin nor end.
  bool dynamic() const { return counters().dynamic; }
  // Returns the range for this step, >= 1e-5. Mode safe: at least `largest`. Mode streaming: from
  // earlier steps only (in the first step `largest`). `largest` is finite and >= 0.
  float begin(float largest);
  // `clipped` of the step's `values` numbers have a magnitude above the range from begin.
  void end(std::uint64_t clipped, std::uint64_t values);

  const OnlineOptions& options() const { return options_; }
  // The current statistics. Waits for the device if the state is on a device.
  const OnlineCounters& counters() const { return save().counters; }
  const State& save() const;
  // Throws Error if the state cannot be one that save() returned for these options.
  void restore(const State& state);

  // move_to_device moves the state to the device; begin and end copy it back first.
  void move_to_device(std::unique_ptr<DeviceScale> scale);
  void fetch_from_device();
  DeviceScale* on_device() const { return on_device_.get(); }  // null: the state is on the host

 private:
  OnlineOptions options_;
  mutable State state_;  // if the state is on a device: the last copy fetched
  std::unique_ptr<DeviceScale> on_device_;
};

// std::popcount is not used, because nvcc compiles its builtin to nothing in device code.
constexpr int count_ones(std::uint64_t bits) {
  int ones = 0;
  for (; bits != 0; bits &= bits - 1) ++ones;
  return ones;
}

constexpr void push_largest(OnlineState& state, const OnlineOptions& options, float largest) {
  state.window[state.next] = largest;
  const auto length = static_cast<std::uint32_t>(options.window);
  state.next = (state.next + 1) % length;
  state.recent = state.recent < length ? state.recent + 1 : length;
}

// r = a r + (1 - a) w in double, rounded once, so that steady inputs keep r bit for bit.
constexpr float begin_step(OnlineState& state, const OnlineOptions& options, float largest) {
  const bool first = state.counters.steps == 0;
  const bool safe = options.mode == OnlineMode::safe;
  const float before = first ? largest : state.range;
  push_largest(state, options, largest);
  state.step_largest = largest;
  float recent = 0;
  for (std::uint32_t i = 0; i < state.recent; ++i) recent = std::max(recent, state.window[i]);
  const double decay = options.decay;
  const double mean =
      decay * static_cast<double>(state.range) + (1.0 - decay) * static_cast<double>(recent);
  state.range = first ? largest : static_cast<float>(mean);
  if (safe) state.range = std::max(state.range, largest);
  const float range = safe ? state.range : before;
  return range > OnlineScale::kSmallestRange ? range : OnlineScale::kSmallestRange;
}

constexpr void end_step(OnlineState& state, const OnlineOptions& options, std::uint64_t clipped,
                        std::uint64_t values) {
  OnlineCounters& counters = state.counters;
  const bool reset =
      static_cast<double>(clipped) > OnlineScale::kResetShare * static_cast<double>(values);
  if (reset) {
    state.range = std::max(state.range, state.step_largest);
    state.recent = state.next = 0;
    push_largest(state, options, state.step_largest);
    ++counters.resets;
  }
  state.reset_history = state.reset_history << 1 | (reset ? 1u : 0u);
  counters.dynamic = count_ones(state.reset_history) > OnlineScale::kMaxResets;
  counters.clipped += clipped;
  counters.values += values;
  counters.smallest = counters.steps == 0 ? state.range : std::min(counters.smallest, state.range);
  counters.largest = std::max(counters.largest, state.range);
  ++counters.steps;
}

}  // namespace leq
