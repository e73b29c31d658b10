// Launches a matmul on wgmma. The files int_gemm_wgmma_*.cu compile in parallel.
#pragma once

#include "cuda/kernels/matmul/hopper_launch.cuh"
#include "cuda/kernels/matmul/int_gemm_wgmma.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {

// The grid has one block for each multiprocessor; each block iterates over tiles.
template <int bits, int group, int tokens, bool zeros>
void launch_wgmma(const IntMatmul& a, rt::Stream& stream) {
  using Shape = HopperShape<bits, group, tokens, zeros>;
  using Memory = HopperMemory<Shape>;
  const std::int64_t padded = padded_columns(a.columns), bytes = padded * bits / 8;
  const HopperMaps maps = hopper_maps<Shape>(
      a, rows_map(a.x.codes, a.tokens, padded, a.x.code_stride, tokens / kCluster, kBoxBytes),
      [&](const CodeSegment& segment, int box_rows) {
        return rows_map(segment.weight.codes, segment.rows, bytes, bytes, box_rows,
                        Memory::kRowBytes);
      });
  rt::run(stream, hopper_launch("int_gemm_wgmma", maps, Memory::kBytes, stream),
          int_gemm_wgmma<Shape>, a, maps);
}

}  // namespace leq::LEQ_GPU
