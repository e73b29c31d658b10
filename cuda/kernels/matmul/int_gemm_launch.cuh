// Launches a tensor-core matmul. The files int_gemm_*.cu compile in parallel. All tiles add in one
// order, so the choice of a tile does not change results.
#pragma once

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_gemm.cuh"
#include "cuda/kernels/matmul/int_gemm_few.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

using SmallTile = GemmShape<16, 64, 1, 4, 6>;
using MiddleTile = GemmShape<64, 64, 2, 2, 4>;
using LargeTile = GemmShape<128, 128, 2, 4, 3>;

// The number of columns of one int32 sum; 0 if it is over the whole row.
inline int sum_columns(const IntMatmul& a) {
  const int weights = a.segments[0].weight.group;
  return weights == 0 || (a.x.group > 0 && a.x.group < weights) ? a.x.group : weights;
}

template <class Shape, int bits, int group>
void launch_gemm(const IntMatmul& a, rt::Stream& stream) {
  rt::run(stream,
          {"int_gemm", tiles_of<Shape>(a), dim3(Shape::kThreads),
           GemmMemory<Shape, bits, group>::kBytes, rt::Start::early},
          int_gemm<Shape, bits, group>, a);
}

template <class Shape, int bits, int group>
void launch_few(const IntMatmul& a, rt::Stream& stream) {
  rt::run(stream,
          {"int_gemm_few", tiles_of<Shape>(a), dim3(Shape::kThreads),
           FewMemory<Shape, bits, group>::kBytes, rt::Start::early},
          int_gemm_few<Shape, bits, group>, a);
}

template <int bits, int group>
void launch_tile(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  if (tile == GemmTile::few) {
    // With groups, int_gemv_tokens has up to 16 tokens of few outputs.
    if constexpr (group == 0) {
      if (a.tokens <= 16) return launch_few<FewShape<16>, bits, group>(a, stream);
    }
    return launch_few<FewShape<32>, bits, group>(a, stream);
  }
  if (tile == GemmTile::small) return launch_gemm<SmallTile, bits, group>(a, stream);
  if (tile == GemmTile::middle) return launch_gemm<MiddleTile, bits, group>(a, stream);
  launch_gemm<LargeTile, bits, group>(a, stream);
}

template <int bits>
void launch_int_gemm(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  const int group = sum_columns(a);
  if constexpr (bits == 8 || bits == kTableBits) {
    if (group == 16) return launch_gemm<MiddleTile, bits, 16>(a, stream);
  }
  if (group == 32) return launch_gemm<MiddleTile, bits, 32>(a, stream);
  if constexpr (bits != kTableBits) {  // which have groups of at most 32 columns
    if (group == 64) return launch_gemm<MiddleTile, bits, 64>(a, stream);
    if (group == 128) return launch_tile<bits, 128>(a, tile, stream);
  }
  // Codes of fewer than 8 bits always have groups.
  if constexpr (bits == 8) launch_tile<bits, 0>(a, tile, stream);
}

}  // namespace leq::LEQ_GPU
