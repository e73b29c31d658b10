// Times the parts of a step on a stream by events between operations (step_parts.h); each operation
// is also a range for profilers.
#pragma once

#include <chrono>
#include <string_view>
#include <vector>

#include "backend/step_times.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

class PartEvents {
 public:
  class Span {
   public:
    template <class Bytes>
    Span(PartEvents& clock, StepPart part, Bytes&& bytes)
        : timed_(clock, clock.running_ ? &clock.times_ : nullptr, part, bytes) {
      rt::begin_range(kStepPartNames[static_cast<std::size_t>(part)].data());
    }
    ~Span() { rt::end_range(); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PartSpan<PartEvents> timed_;
  };

  PartEvents(int device, rt::Stream& stream) : device_(device), stream_(stream) {}

  bool running() const { return running_; }
  // The stream must be synchronized (idle).
  void start();
  // The same. Time without work on the stream counts as `sync`.
  StepTimes stop();
  // `bytes` is called only while timing is on.
  template <class Bytes>
  [[nodiscard]] Span in(StepPart part, Bytes&& bytes) {
    return {*this, part, bytes};
  }
  void switch_to(StepPart part);

 private:
  using Clock = std::chrono::steady_clock;

  int device_;
  rt::Stream& stream_;
  bool running_ = false;
  Clock::time_point start_;
  std::vector<StepPart> parts_;         // part i begins at event i
  std::vector<rt::EventOwner> events_;  // kept for the next time
  StepTimes times_;
};

}  // namespace leq::LEQ_GPU
