#include "backend/online_scale.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace leq {

OnlineScale::OnlineScale(const OnlineOptions& options) : options_(options) {
  require(options.decay >= 0 && options.decay < 1, ErrorKind::bad_setting, "online scale: decay ",
          options.decay, ": expected 0 <= decay < 1");
  require(options.window >= 1 && options.window <= State::kLongestWindow, ErrorKind::bad_setting,
          "online scale: window ", options.window, ": expected 1 to ", State::kLongestWindow,
          " steps");
}

float OnlineScale::begin(float largest) {
  fetch_from_device();
  return begin_step(state_, options_, largest);
}

void OnlineScale::end(std::uint64_t clipped, std::uint64_t values) {
  fetch_from_device();
  end_step(state_, options_, clipped, values);
}

const OnlineScale::State& OnlineScale::save() const {
  if (on_device_ != nullptr) state_ = on_device_->fetch();
  return state_;
}

void OnlineScale::move_to_device(std::unique_ptr<DeviceScale> scale) {
  fetch_from_device();
  on_device_ = std::move(scale);
  on_device_->store(state_);
}

void OnlineScale::fetch_from_device() {
  if (on_device_ == nullptr) return;
  state_ = on_device_->fetch();
  on_device_ = nullptr;
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
  if (on_device_ != nullptr) on_device_->store(state);
}

}  // namespace leq
