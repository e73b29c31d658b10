// The scale of act online: an exponential mean of the recent largest inputs of one linear, with a
// fast way up and a slow way down (docs/quantization.md; LLMEasyQuant, eq. 1 and 9, made sane).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "tensor/weight_layout.h"

namespace leq {

struct OnlineOptions {
  float decay = 0.9f;  // a: share of the old range that a step keeps, in [0, 1)
  int window = 64;     // steps whose largest |x| counts, 1 to 64
  OnlineMode mode = OnlineMode::safe;
};

// Statistics of one linear's scale, for reports.
struct OnlineCounters {
  std::uint64_t steps = 0;
  std::uint64_t resets = 0;   // steps after which the range jumped up
  std::uint64_t values = 0;   // numbers quantized
  std::uint64_t clipped = 0;  // of them, outside the range
  float smallest = 0;         // range so far; 0 before the first step
  float largest = 0;
  bool dynamic = false;  // gave up: one scale for each row since

  double clipped_share() const {
    return values == 0 ? 0 : static_cast<double>(clipped) / static_cast<double>(values);
  }
};

// The whole state of a scale: restoring a copy gives the same ranges, bit for bit.
struct OnlineState {
  static constexpr int kLongestWindow = 64;

  float range = 0;                                // r
  float step_largest = 0;                         // m of the step between begin and end
  std::uint32_t recent = 0;                       // entries of the window in use
  std::uint32_t next = 0;                         // where the next one goes
  std::uint64_t reset_history = 0;                // bit i: i steps ago was a reset
  std::array<float, kLongestWindow> window = {};  // m of the last steps, a ring
  OnlineCounters counters;
};

// The two halves of a step, as OnlineScale says below: compiled for GPUs too.
constexpr float begin_step(OnlineState& state, const OnlineOptions& options, float largest);
constexpr void end_step(OnlineState& state, const OnlineOptions& options, std::uint64_t clipped,
                        std::uint64_t values);

// Access to an OnlineState that lies on a device, whose kernels carry out the steps themselves. A
// backend must outlive the scales that it has quantized with.
class DeviceScale {
 public:
  virtual ~DeviceScale() = default;
  virtual OnlineState fetch() = 0;                   // after all operations so far; waits
  virtual void store(const OnlineState& state) = 0;  // for the operations to come; waits
};

// One step = the rows of one batch. Around the quantization of a step with the largest |x| = m:
//   r = begin(m);  s = r / 127, inv = 127 / r for all rows;  end(clipped, values)
class OnlineScale {
 public:
  // A step with more than this share of its numbers clipped resets the range.
  static constexpr double kResetShare = 1e-3;
  // More resets than this within 64 steps: the inputs are not steady enough for one scale.
  static constexpr int kMostResets = 8;
  static constexpr float kSmallestRange = 1e-5f;  // eps0
  using State = OnlineState;

  // Throws Error where an option is out of range.
  explicit OnlineScale(const OnlineOptions& options = {});

  // True: quantize by row, and leave begin and end alone.
  bool dynamic() const { return counters().dynamic; }
  // Range to quantize this step with, >= 1e-5. safe: never below `largest`. streaming: what the
  // steps before it say (the first step: `largest`). `largest` is finite and >= 0.
  float begin(float largest);
  // `clipped` of the step's `values` numbers have a magnitude above the range that begin gave.
  void end(std::uint64_t clipped, std::uint64_t values);

  const OnlineOptions& options() const { return options_; }
  // What is remembered now. Waits for the device where the steps are carried out there.
  const OnlineCounters& counters() const { return save().counters; }
  const State& save() const;
  // Throws Error where the state is none that save() gives for these options.
  void restore(const State& state);

  // Moves the state to the device; begin and end copy it back.
  void move_to_device(std::unique_ptr<DeviceScale> scale);
  void fetch_from_device();
  DeviceScale* on_device() const { return on_device_.get(); }  // null: there is none

 private:
  OnlineOptions options_;
  mutable State state_;  // with a device state: what was fetched last
  std::unique_ptr<DeviceScale> on_device_;
};

// Not std::popcount: nvcc compiles the builtin behind it to nothing in device code.
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

// r = a r + (1 - a) w in double, rounded once: steady inputs keep r to the bit.
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
  counters.dynamic = count_ones(state.reset_history) > OnlineScale::kMostResets;
  counters.clipped += clipped;
  counters.values += values;
  counters.smallest = counters.steps == 0 ? state.range : std::min(counters.smallest, state.range);
  counters.largest = std::max(counters.largest, state.range);
  ++counters.steps;
}

}  // namespace leq
