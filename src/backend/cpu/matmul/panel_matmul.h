// Multiplies one panel (64 outputs) of a stored weight of any scheme by a block of rows, by filling
// in the descriptions that the kernels take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {

// Scratch of one panel matmul. Integer kernels need the most; weight-only matmuls store a
// dequantized K tile of a panel and the lanes of its chains.
inline constexpr std::size_t kPanelScratchBytes = kIntScratchBytes;

struct PanelTask {
  const LinearSegment* segment = nullptr;
  std::int64_t panel = 0;
  const LinearSegment* next_segment = nullptr;  // panel to prefetch meanwhile, or null
  std::int64_t next_panel = 0;
  Fetch fetch = Fetch::twice;  // see IntPanel
  const Rows* x = nullptr;
  std::int64_t token = 0;  // first token
  std::int64_t tokens = 0;
  float* y = nullptr;  // [tokens][y_stride], with space for 64 columns
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kPanelScratchBytes, 64-byte aligned
};

// y[t] = x[token + t] W^T + bias for the panel's outputs. Columns of y past the weight's last row
// are unchanged or get arbitrary values.
void multiply_panel(const MatmulKernels& kernels, const PanelTask& task) noexcept;

// Throws Error with the linear's name if x lacks codes, scales or sums that its weights need.
void check_inputs(const Linear& linear, const Rows& x);

}  // namespace leq::cpu
