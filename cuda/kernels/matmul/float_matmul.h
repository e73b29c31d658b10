// The kernels for f32 activations x weights on tensor cores; float_matmul.cu selects one of them.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Tokens x outputs of a tile: 8 x 16 or 32, 64 x 64, 128 x 128 (64 x 128 for 3 and 2 bits). All
// kernels add in one order, so the choice of a tile does not change results.
enum class FloatTile : std::uint8_t { few, middle, large };
void launch_float_gemm_f16(const FloatMatmul& a, FloatTile tile, rt::Stream& stream);
void launch_float_gemm_bf16(const FloatMatmul& a, FloatTile tile, rt::Stream& stream);
void launch_float_gemm(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream);
template <int bits>
void launch_float_gemm(const WeightOnlyMatmul& a, FloatTile tile, rt::Stream& stream);

// For compute capability 9.0: terms in TermOrder::steps, tiles of 128 x 128, equal order of sums.
void launch_float_wgmma_f16(const FloatMatmul& a, rt::Stream& stream);
void launch_float_wgmma_bf16(const FloatMatmul& a, rt::Stream& stream);
void launch_float_wgmma_codes(const WeightOnlyMatmul& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
