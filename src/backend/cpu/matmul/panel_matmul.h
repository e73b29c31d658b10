// Multiplies one panel (64 outputs) of a stored weight, of any scheme, with a block of rows: fills
// in the kernels' descriptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/matmul/matmul_kernels.h"

namespace leq::cpu {

// Scratch of one panel matmul: that of the integer kernels, or a dequantized K tile of a panel and
// the lanes of its chains.
inline constexpr std::size_t kPanelScratchBytes = kIntScratchBytes;

struct PanelTask {
  const LinearSegment* segment = nullptr;
  std::int64_t panel = 0;
  const LinearSegment* next_segment = nullptr;  // the panel that may be fetched meanwhile, or null
  std::int64_t next_panel = 0;
  Fetch fetch = Fetch::twice;  // of IntPanel
  const Rows* x = nullptr;
  std::int64_t token = 0;  // first
  std::int64_t tokens = 0;
  float* y = nullptr;  // [tokens][y_stride], 64 columns of room
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kPanelScratchBytes, 64-byte aligned
};

// y[t] = x[token + t] W^T + bias for the panel's outputs. Columns past the weight's last row are
// left alone or hold any number.
void multiply_panel(const MatmulKernels& kernels, const PanelTask& task) noexcept;

// Throws Error naming the linear where x does not hold what its weights need.
void check_inputs(const Linear& linear, const Rows& x);

}  // namespace leq::cpu
