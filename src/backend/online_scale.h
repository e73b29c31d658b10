// The scale of act online: an exponential mean of the recent largest inputs of one linear, with a
// fast way up and a slow way down (docs/quantization.md; LLMEasyQuant, eq. 1 and 9, made sane).
#pragma once

#include <array>
#include <cstdint>

#include "tensor/weight_layout.h"

namespace leq {

struct OnlineOptions {
  float decay = 0.9f;  // a: share of the old range that a step keeps, in [0, 1)
  int window = 64;     // steps whose largest |x| counts, 1 to 64
  OnlineMode mode = OnlineMode::safe;
};

// What a user wants to know of one linear's scale.
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

// One step = the rows of one batch. Around the quantization of a step with the largest |x| = m:
//   r = begin(m);  s = r / 127, inv = 127 / r for all rows;  end(clipped, values)
class OnlineScale {
 public:
  // A step with more than this share of its numbers clipped resets the range.
  static constexpr double kResetShare = 1e-3;
  // More resets than this within 64 steps: the inputs are not steady enough for one scale.
  static constexpr int kMostResets = 8;
  static constexpr float kSmallestRange = 1e-5f;  // eps0
  static constexpr int kLongestWindow = 64;

  // Throws Error where an option is out of range.
  explicit OnlineScale(const OnlineOptions& options = {});

  // True: quantize by row, and leave begin and end alone.
  bool dynamic() const { return state_.counters.dynamic; }
  // Range to quantize this step with, >= 1e-5. safe: never below `largest`. streaming: what the
  // steps before it say (the first step: `largest`). `largest` is finite and >= 0.
  float begin(float largest);
  // `clipped` of the step's `values` numbers have a magnitude above the range that begin gave.
  void end(std::uint64_t clipped, std::uint64_t values);

  const OnlineOptions& options() const { return options_; }
  const OnlineCounters& counters() const { return state_.counters; }

  // All that a scale remembers: a copy put back gives the same ranges, bit for bit.
  struct State {
    float range = 0;                                // r
    float step_largest = 0;                         // m of the step between begin and end
    std::uint32_t recent = 0;                       // entries of the window in use
    std::uint32_t next = 0;                         // where the next one goes
    std::uint64_t reset_history = 0;                // bit i: i steps ago was a reset
    std::array<float, kLongestWindow> window = {};  // m of the last steps, a ring
    OnlineCounters counters;
  };
  const State& save() const { return state_; }
  // Throws Error where the state is none that save() gives for these options.
  void restore(const State& state);

 private:
  void push(float largest);
  float window_largest() const;

  OnlineOptions options_;
  State state_;
};

}  // namespace leq
