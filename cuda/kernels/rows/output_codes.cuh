// Codes of outputs with a scale per 128 columns, written by the block that finished the 128
// columns, or by the last of the blocks that share these columns.
#pragma once

#include "cuda/intrinsics/last_block.cuh"
#include "cuda/kernels/rows/quantize.cuh"

namespace leq::LEQ_GPU {

// Called by one warp: quantizes 128 columns of row `token` in `out` from `first` on. Outputs remain
// multiplied by inv_smooth, as in quantize_rows.
__device__ __forceinline__ void quantize_outputs(const OutputCodes& codes, const FloatRows& out,
                                                 std::int64_t token, std::int64_t first,
                                                 std::int64_t width) {
  float* const row = out.values + token * out.stride;
  Quad quad;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t k = first + threadIdx.x % 32 * 4 + i;
    quad.x[i] = k < width ? read_fresh(row + k) : 0.0f;
    if (codes.inv_smooth == nullptr || k >= width) continue;
    quad.x[i] *= codes.inv_smooth[k];
    row[k] = quad.x[i];
  }
  quantize_quad(quad, token, first, codes.quantize);
}

// Each block has `width` neighbouring columns from `column` on, and calls this after its writes.
template <int width>
__device__ __forceinline__ void finish_codes(const OutputCodes& codes, const FloatRows& out,
                                             std::int64_t tokens, std::int64_t columns,
                                             std::int64_t column) {
  static_assert(128 % width == 0);
  if (!codes.exist()) return;
  const std::int64_t group = column / 128;
  const auto in_group = static_cast<int>(min(columns - group * 128, std::int64_t{128}));
  const auto blocks = static_cast<unsigned>((in_group + width - 1) / width);
  if (!is_last_block(codes.tickets + group, blocks)) return;
  for (std::int64_t token = threadIdx.x / 32; token < tokens; token += blockDim.x / 32) {
    quantize_outputs(codes, out, token, group * 128, columns);
  }
}

}  // namespace leq::LEQ_GPU
