#include "cuda/host/part_events.h"

#include <algorithm>

namespace leq::LEQ_GPU {

void PartEvents::start() {
  parts_.clear();
  times_ = StepTimes();
  running_ = true;
  start_ = Clock::now();
}

void PartEvents::switch_to(StepPart part) {
  if (parts_.size() == events_.size()) events_.push_back(rt::make_event(device_));
  rt::record(*events_[parts_.size()], stream_);
  parts_.push_back(part);
}

StepTimes PartEvents::stop() {
  running_ = false;
  const double whole = std::chrono::duration<double>(Clock::now() - start_).count();
  double worked = 0;
  for (std::size_t i = 0; i + 1 < parts_.size(); ++i) {
    if (parts_[i] == StepPart::sync) continue;
    const double seconds = rt::seconds_between(*events_[i], *events_[i + 1]);
    times_[parts_[i]].seconds += seconds;
    worked += seconds;
  }
  times_[StepPart::sync].seconds = std::max(whole - worked, 0.0);
  return times_;
}

}  // namespace leq::LEQ_GPU
