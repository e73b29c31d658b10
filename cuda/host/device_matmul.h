// Selects and launches the kernels of linears.
#pragma once

#include <cstdint>

#include "backend/operations.h"
#include "cuda/host/row_finish.h"

namespace leq::LEQ_GPU {

class DeviceMatmul {
 public:
  DeviceMatmul(rt::Stream& stream, RowFinish& rows, PartEvents& clock)
      : stream_(stream), rows_(rows), clock_(clock) {}

  // Writes the linear's outputs to target.rows; returns whether it wrote the reader's codes, too.
  bool multiply(const Rows& x, std::int64_t tokens, const Linear& linear, Epilogue epilogue,
                const RowsFor& target);

 private:
  void multiply_segments(const Rows& x, std::int64_t tokens, const Linear& linear,
                         Epilogue epilogue, const Rows& out);

  rt::Stream& stream_;
  RowFinish& rows_;
  PartEvents& clock_;
};

}  // namespace leq::LEQ_GPU
