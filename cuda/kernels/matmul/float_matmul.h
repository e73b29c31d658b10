// The kernels for f32 activations x weights on tensor cores; float_matmul.cu selects one of them.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Tokens x outputs of a tile: 8 x 16 or 32, 64 x 64, 128 x 128 (64 x 128 for 3 and 2 bits). All
// kernels add in one order, so the choice of a tile does not change results.
enum class FloatTile : std::uint8_t { few, middle, large };
void launch_float_gemm(const FloatMatmul& a, FloatTile tile, rt::Stream& stream);  // 16-bit floats
void launch_float_gemm(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
