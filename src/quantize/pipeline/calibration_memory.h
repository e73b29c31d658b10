// Memory of a calibrated run, planned before it starts.
#pragma once

#include <cstdint>
#include <string>

#include "backend/layout.h"
#include "model/model_config.h"

namespace leq {

// The data that a run holds at one time.
struct CalibrationShape {
  std::int64_t windows = 0;
  std::int64_t length = 0;  // tokens of a window
  bool hidden = true;       // hidden states are needed (statistics are not loaded from a file)
  bool together = true;     // statistics of all inputs of a block at the same time
  bool hessian_together = false;  // X^T X of all inputs at the same time
  bool hessian_of_one = false;    // X^T X of one input at a time, for a method that solves with it
  std::int64_t sample_tokens = 0;
};

struct CalibrationMemory {
  std::uint64_t block = 0;       // f32 weights of one block
  std::uint64_t forward = 0;     // activations, keys and values of one window
  std::uint64_t statistics = 0;  // of the inputs gathered at one time, with X^T X
  std::uint64_t method = 0;      // of the largest linear while its codes are chosen
  std::uint64_t hidden = 0;      // of all windows; 0 where they are on disk
  std::uint64_t hidden_on_disk = 0;
  std::uint64_t total() const { return block + forward + statistics + method + hidden; }
};

// The memory of a run within `limit` bytes (0 = no limit): hidden states go to disk where they do
// not fit. Throws Error with all sizes where that is not enough.
CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit);

// "block 810 MB, forward ..., 7.1 GB in all"
std::string describe(const CalibrationMemory& memory);

}  // namespace leq
