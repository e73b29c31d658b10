// Memory of a calibrated run, planned before the run starts.
#pragma once

#include <cstdint>
#include <string>

#include "backend/layout.h"
#include "model/model_config.h"

namespace leq {

// Describes which data a run holds at the same time.
struct CalibrationShape {
  std::int64_t windows = 0;
  std::int64_t length = 0;        // tokens per window
  bool hidden = true;             // hidden states are needed, as statistics are not from a file
  bool together = true;           // statistics of all inputs of a block are held together
  bool hessian_together = false;  // X^T X of all inputs are held together
  bool hessian_of_one = false;    // X^T X of one input at a time is held to solve with it
  std::int64_t sample_tokens = 0;
};

struct CalibrationMemory {
  std::uint64_t block = 0;       // f32 weights of one block
  std::uint64_t forward = 0;     // activations, keys and values of one window
  std::uint64_t statistics = 0;  // statistics gathered together, with X^T X
  std::uint64_t method = 0;      // scratch for choosing codes of the largest linear
  std::uint64_t hidden = 0;      // hidden states of all windows; 0 if on disk
  std::uint64_t hidden_on_disk = 0;
  std::uint64_t total() const { return block + forward + statistics + method + hidden; }
};

// Plans a run within `limit` bytes (0 = no limit). Hidden states are stored on disk if they do not
// fit into memory. Throws Error with all sizes if the rest does not fit either.
CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit);

// A text such as "block 810 MB, forward ..., 7.1 GB in all".
std::string describe(const CalibrationMemory& memory);

}  // namespace leq
