// Selects and launches the kernels of linears.
#pragma once

#include <cstdint>
#include <variant>

#include "backend/operations.h"
#include "cuda/host/row_finish.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/super.h"

namespace leq::LEQ_GPU {

// While a step is enqueued (between hold and drop_held), a matmul of one token is held back until
// the next operation: if it is the norm of its outputs, or prepares them for attention, both are
// one launch. All other operations call launch_held first.
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
    held_ = {};
  }
  void launch_held();
  // Launches the held matmul, if there is one. Returns whether `next` was launched with it.
  template <class Next>
  bool join(const Next& next) {
    const bool joined = std::visit(
        [&](const auto& matmul) {
          if constexpr (requires { joins(matmul, next); }) {
            if (!joins(matmul, next)) return false;
            launch_joined(matmul, next, rows_.tickets(), stream_);
            return true;
          }
          return false;
        },
        held_);
    if (joined) held_ = {};
    launch_held();
    return joined;
  }

 private:
  // Launches a matmul or holds it back; returns whether it quantizes its outputs.
  template <class Matmul>
  bool launch(Matmul a, const RowsFor& target, std::string_view site);
  void multiply_segments(const Rows& x, std::int64_t tokens, const Linear& linear,
                         Epilogue epilogue, const Rows& out);

  rt::Stream& stream_;
  RowFinish& rows_;
  PartEvents& clock_;
  std::variant<std::monostate, IntMatmul, SuperMatmul> held_;
  bool holds_ = false;
};

}  // namespace leq::LEQ_GPU
