// Measures the parts of a step on a stream (steps.h) with events between operations. Each
// operation is also a named range in profilers.
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
  // The stream must be idle (synchronized).
  void start();
  // The stream must be idle. The time in which the stream had no work is counted as `sync`.
  StepTimes stop();
  // `bytes` is only called while times are being measured.
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
  std::vector<rt::EventOwner> events_;  // kept for later measurements
  StepTimes times_;
};

}  // namespace leq::LEQ_GPU
