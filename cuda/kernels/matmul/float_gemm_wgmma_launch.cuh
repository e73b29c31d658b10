// Launches a matmul of terms (f16 or bf16 parts of inputs) on wgmma. The files
// float_gemm_wgmma_*.cu include this file and compile in parallel.
#pragma once

#include "cuda/kernels/matmul/float_gemm_wgmma.cuh"
#include "cuda/kernels/matmul/float_matmul.h"
#include "cuda/kernels/matmul/hopper_launch.cuh"

namespace leq::LEQ_GPU {

template <class Weights>
void launch_wgmma(const typename Weights::Arguments& a, rt::Stream& stream) {
  using Shape = FloatHopperShape<Weights>;
  const std::int64_t row_bytes = Weights::row_bytes(a), token_bytes = a.x.stride * 2;
  const HopperMaps maps = hopper_maps<Shape>(
      a,
      rows_map(a.x.terms, a.tokens, token_bytes, token_bytes, Shape::kTokens / kCluster, kBoxBytes),
      [&](const auto& segment, int box_rows) {
        return rows_map(Weights::stored(segment), segment.rows, row_bytes, row_bytes, box_rows,
                        Shape::Box::kRowBytes);
      });
  rt::run(stream, hopper_launch("float_gemm_wgmma", maps, FloatHopperMemory<Shape>::kBytes, stream),
          float_gemm_wgmma<Shape>, a, maps);
}

}  // namespace leq::LEQ_GPU
