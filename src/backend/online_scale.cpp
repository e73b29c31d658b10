#include "backend/online_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace leq {

OnlineScale::OnlineScale(const OnlineOptions& options) : options_(options) {
  require(options.decay >= 0 && options.decay < 1, "online scale: decay ", options.decay,
          ": expected 0 <= decay < 1");
  require(options.window >= 1 && options.window <= kLongestWindow, "online scale: window ",
          options.window, ": expected 1 to ", kLongestWindow, " steps");
}

void OnlineScale::push(float largest) {
  state_.window[state_.next] = largest;
  const auto length = static_cast<std::uint32_t>(options_.window);
  state_.next = (state_.next + 1) % length;
  state_.recent = std::min(state_.recent + 1, length);
}

float OnlineScale::window_largest() const {
  return *std::max_element(state_.window.begin(), state_.window.begin() + state_.recent);
}

// r = a r + (1 - a) w in double, rounded once: steady inputs keep r to the bit.
float OnlineScale::begin(float largest) {
  const bool first = state_.counters.steps == 0;
  const bool safe = options_.mode == OnlineMode::safe;
  const float before = first ? largest : state_.range;
  push(largest);
  state_.step_largest = largest;
  const double decay = options_.decay;
  const double mean = decay * static_cast<double>(state_.range) +
                      (1.0 - decay) * static_cast<double>(window_largest());
  state_.range = first ? largest : static_cast<float>(mean);
  if (safe) state_.range = std::max(state_.range, largest);
  return std::max(safe ? state_.range : before, kSmallestRange);
}

void OnlineScale::end(std::uint64_t clipped, std::uint64_t values) {
  OnlineCounters& counters = state_.counters;
  const bool reset = static_cast<double>(clipped) > kResetShare * static_cast<double>(values);
  if (reset) {
    state_.range = std::max(state_.range, state_.step_largest);
    state_.recent = state_.next = 0;
    push(state_.step_largest);
    ++counters.resets;
  }
  state_.reset_history = state_.reset_history << 1 | (reset ? 1u : 0u);
  counters.dynamic = std::popcount(state_.reset_history) > kMostResets;
  counters.clipped += clipped;
  counters.values += values;
  counters.smallest =
      counters.steps == 0 ? state_.range : std::min(counters.smallest, state_.range);
  counters.largest = std::max(counters.largest, state_.range);
  ++counters.steps;
}

void OnlineScale::restore(const State& state) {
  const auto length = static_cast<std::uint32_t>(options_.window);
  const auto whole = [](float x) { return std::isfinite(x) && x >= 0; };
  require(whole(state.range) && whole(state.step_largest) &&
              std::all_of(state.window.begin(), state.window.end(), whole) &&
              state.recent <= length && state.next < length &&
              (state.recent > 0 || state.counters.steps == 0),
          "online scale: the saved state does not belong to a window of ", length, " steps");
  state_ = state;
}

}  // namespace leq
