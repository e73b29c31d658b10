// How a backend measures a step: a clock that assigns all time to the parts of steps.h, read where
// an operation begins and ends, and the bytes that operations must move.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace leq {

// Bytes that an operation must read and write: weights once, caches in whole positions.
std::uint64_t moved_bytes(const Linear& linear);
// Bytes that the linears of the experts that have rows must read and write.
std::uint64_t moved_bytes(const ExpertRoutes& routes, const ExpertLinear& linear);
std::uint64_t moved_bytes(const Embedding& embedding);
std::uint64_t moved_bytes(const Rows& rows, std::int64_t tokens);
// Bytes of the keys and values of all positions that are visible to the batch's rows.
std::uint64_t moved_bytes(const BatchView& batch, const AttentionShape& shape, const KvLayer& kv);
// Bytes of the states of the batch's sequences, which are read and written.
std::uint64_t moved_bytes(const BatchView& batch, const DeltaShape& shape);

// While this object exists, time is assigned to its part; between such objects, to `sync`.
template <class Clock>
class PartSpan {
 public:
  // Counts an operation of the part in `times`; if null, does no timing and does not call `bytes`.
  template <class Bytes>
  PartSpan(Clock& clock, StepTimes* times, StepPart part, Bytes&& bytes)
      : clock_(times == nullptr ? nullptr : &clock) {
    if (times == nullptr) return;
    clock.switch_to(part);
    (*times)[part].bytes += bytes();
    ++(*times)[part].operations;
  }
  ~PartSpan() {
    if (clock_ != nullptr) clock_->switch_to(StepPart::sync);
  }
  PartSpan(const PartSpan&) = delete;
  PartSpan& operator=(const PartSpan&) = delete;

 private:
  Clock* clock_;
};

// The clock for operations that are complete when they return.
class PartClock {
 public:
  void start();
  StepTimes stop();
  // `bytes` is called only while the clock is running.
  template <class Bytes>
  [[nodiscard]] PartSpan<PartClock> in(StepPart part, Bytes&& bytes) {
    return {*this, running_ ? &times_ : nullptr, part, bytes};
  }
  void switch_to(StepPart part);

 private:
  using Clock = std::chrono::steady_clock;

  bool running_ = false;
  StepPart part_ = StepPart::sync;
  Clock::time_point since_;
  StepTimes times_;
};

}  // namespace leq
