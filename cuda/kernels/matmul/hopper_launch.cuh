// Launches a matmul on wgmma: makes the tensor maps of its operands, and sizes the grid.
#pragma once

#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/hopper_tiles.cuh"

namespace leq::LEQ_GPU {

// The tensor map of rows of `bytes` bytes in device memory; a load takes `columns` bytes of a row.
inline rt::TensorMap rows_map(const void* base, std::int64_t rows, std::int64_t bytes,
                              std::int64_t stride, int box_rows, int columns) {
  rt::TiledBytes matrix;
  matrix.base = base;
  matrix.rows = rows;
  matrix.columns = bytes;
  matrix.stride = stride;
  matrix.box_rows = box_rows;
  matrix.box_columns = columns;
  matrix.swizzle = columns % 32 != 0 ? rt::Swizzle::none : static_cast<rt::Swizzle>(columns);
  return rt::make_tensor_map(matrix);
}

// map_of(segment, box_rows) returns the tensor map of a segment's rows.
template <class Shape, class Arguments, class MapOf>
HopperMaps hopper_maps(const Arguments& a, const rt::TensorMap& tokens, MapOf map_of) {
  const bool paired = is_gated(a.finish);
  const int rows_of_tile = paired ? Shape::kRows / 2 : Shape::kRows;
  HopperMaps maps = {};
  maps.tokens = tokens;
  maps.token_tiles = static_cast<int>((a.tokens + Shape::kTokens - 1) / Shape::kTokens);
  for (int i = 0; i < a.segment_count; ++i) {
    maps.weights[i] = map_of(a.segments[i], paired ? 8 : Shape::kRows);
    if (paired && i > 0) continue;
    maps.row_tiles += static_cast<int>((a.segments[i].rows + rows_of_tile - 1) / rows_of_tile);
  }
  maps.row_tiles = (maps.row_tiles + kCluster - 1) / kCluster;
  return maps;
}

// The grid has one block for each multiprocessor; each block iterates over tiles.
inline rt::Launch hopper_launch(const char* kernel, const HopperMaps& maps, int shared_bytes,
                                const rt::Stream& stream) {
  const int clusters = std::min(maps.token_tiles * maps.row_tiles,
                                std::max(rt::device_of(stream).multiprocessors / kCluster, 1));
  return {kernel,
          dim3(static_cast<unsigned>(clusters * kCluster)),
          dim3(kHopperThreads),
          static_cast<std::size_t>(shared_bytes),
          rt::Start::in_order,
          static_cast<unsigned>(kCluster)};
}

}  // namespace leq::LEQ_GPU
