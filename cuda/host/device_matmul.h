// Selects and launches the kernels of linears.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/operations.h"
#include "cuda/host/row_finish.h"

namespace leq::LEQ_GPU {

// While a step is enqueued (between hold and drop_held), a matmul of one token is held back until the
// next operation: if it is the norm of its outputs, or prepares them for attention, both are one
// launch. All other operations call launch_held first.
class DeviceMatmul {
 public:
  DeviceMatmul(rt::Stream& stream, RowFinish& rows, PartEvents& clock)
      : stream_(stream), rows_(rows), clock_(clock) {}

  // Writes the linear's outputs to target.rows; returns whether it wrote the reader's codes, too.
  bool multiply(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                const RowsFor& target);

  void hold() { holds_ = true; }
  void drop_held() {
    holds_ = false;
    held_.reset();
  }
  void launch_held() {
    if (held_) launch_int_matmul(*held_, stream_);
    held_.reset();
  }
  // Launches the held matmul, if there is one. Returns whether `next` was launched with it.
  template <class Next>
  bool join(const Next& next) {
    const bool joined = held_ && joins(*held_, next);
    if (!joined) launch_held();
    if (joined) launch_joined(*held_, next, rows_.tickets(), stream_);
    held_.reset();
    return joined;
  }

 private:
  void multiply_segments(const Rows& x, std::int64_t tokens, const Linear& linear,
                         Epilogue epilogue, const Rows& out);

  rt::Stream& stream_;
  RowFinish& rows_;
  PartEvents& clock_;
  std::optional<IntMatmul> held_;
  bool holds_ = false;
};

}  // namespace leq::LEQ_GPU
