// Launches a matmul on wgmma; for the files int_gemm_wgmma_*.cu, so that they compile side by side.
#pragma once

#include "cuda/kernels/matmul/int_gemm_wgmma.cuh"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU {

// Rows of `bytes` bytes in device memory, of which a slab's `columns` are loaded at a time.
inline rt::TensorMap rows_map(const void* base, std::int64_t rows, std::int64_t bytes,
                              std::int64_t stride, int box_rows, int columns) {
  rt::TiledBytes matrix;
  matrix.base = base;
  matrix.rows = rows;
  matrix.columns = bytes;
  matrix.stride = stride;
  matrix.box_rows = box_rows;
  matrix.box_columns = columns;
  matrix.swizzle = columns == 48 ? rt::Swizzle::none : static_cast<rt::Swizzle>(columns);
  return rt::make_tensor_map(matrix);
}

template <class Shape>
HopperMaps hopper_maps(const IntMatmul& a) {
  const bool paired = a.finish == Finish::swiglu;
  const int rows_of_tile = paired ? Shape::kRows / 2 : Shape::kRows;
  const int box_rows = paired ? 8 : Shape::kRows;
  const std::int64_t padded = padded_columns(a.columns);
  HopperMaps maps = {};
  maps.tokens =
      rows_map(a.x.codes, a.tokens, padded, a.x.code_stride, Shape::kTokens / kCluster, kSlab);
  maps.token_tiles = static_cast<int>((a.tokens + Shape::kTokens - 1) / Shape::kTokens);
  maps.row_tiles = 0;
  for (int i = 0; i < a.segment_count; ++i) {
    const CodeSegment& segment = a.segments[i];
    const std::int64_t bytes = padded * Shape::kBits / 8;
    maps.codes[i] = rows_map(segment.weight.codes, segment.rows, bytes, bytes, box_rows,
                             HopperMemory<Shape>::kRowBytes);
    if (paired && i > 0) continue;
    maps.row_tiles += static_cast<int>((segment.rows + rows_of_tile - 1) / rows_of_tile);
  }
  maps.row_tiles = (maps.row_tiles + kCluster - 1) / kCluster;
  return maps;
}

// One block for each multiprocessor, which walks over tiles.
template <int bits, int group, int tokens, bool through_registers>
void launch_wgmma(const IntMatmul& a, rt::Stream& stream) {
  using Shape = HopperShape<bits, group, tokens, through_registers>;
  const HopperMaps maps = hopper_maps<Shape>(a);
  const int clusters = std::min(maps.token_tiles * maps.row_tiles,
                                std::max(rt::device_of(stream).multiprocessors / kCluster, 1));
  rt::run(
      stream,
      {"int_gemm_wgmma", dim3(static_cast<unsigned>(clusters * kCluster)), dim3(Shape::kThreads),
       HopperMemory<Shape>::kBytes, rt::Start::in_order, static_cast<unsigned>(kCluster)},
      a.integers != nullptr ? int_gemm_wgmma<Shape, IntegerSum> : int_gemm_wgmma<Shape, ScaledSum>,
      a, maps);
}

}  // namespace leq::LEQ_GPU
