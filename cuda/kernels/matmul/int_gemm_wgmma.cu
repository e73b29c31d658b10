// Launches a matmul on wgmma: makes the tensor maps of its operands, and selects the tile.
#include "cuda/kernels/matmul/int_gemm_wgmma.cuh"

#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
namespace {

// The tensor map of rows of `bytes` bytes in device memory; a load takes `columns` bytes of a row.
rt::TensorMap rows_map(const void* base, std::int64_t rows, std::int64_t bytes, std::int64_t stride,
                       int box_rows, int columns) {
  const auto swizzle =
      columns % 32 != 0 ? rt::Swizzle::none : static_cast<rt::Swizzle>(columns);
  return rt::make_tensor_map({base, rows, bytes, stride, box_rows, columns, swizzle});
}

// The grid has one block for each multiprocessor; each block iterates over tiles.
template <int bits, int group, int tokens, bool zeros>
void launch(const IntMatmul& a, rt::Stream& stream) {
  using Shape = HopperShape<bits, group, tokens, zeros>;
  using Memory = HopperMemory<Shape>;
  const std::int64_t padded = padded_columns(a.columns), bytes = padded * bits / 8;
  const bool paired = is_gated(a.finish);
  const int rows_of_tile = paired ? Shape::kRows / 2 : Shape::kRows;
  HopperMaps maps = {};
  maps.tokens =
      rows_map(a.x.codes, a.tokens, padded, a.x.code_stride, tokens / kCluster, kBoxBytes);
  maps.token_tiles = static_cast<int>((a.tokens + tokens - 1) / tokens);
  for (int i = 0; i < a.segment_count; ++i) {
    const auto& [weight, bias, rows] = a.segments[i];
    maps.weights[i] =
        rows_map(weight.codes, rows, bytes, bytes, paired ? 8 : Shape::kRows, Memory::kRowBytes);
    if (paired && i > 0) continue;
    maps.row_tiles += static_cast<int>((rows + rows_of_tile - 1) / rows_of_tile);
  }
  maps.row_tiles = (maps.row_tiles + kCluster - 1) / kCluster;
  const int clusters = std::min(maps.token_tiles * maps.row_tiles,
                                std::max(rt::device_of(stream).multiprocessors / kCluster, 1));
  rt::run(stream,
          {"int_gemm_wgmma", dim3(static_cast<unsigned>(clusters * kCluster)), dim3(kHopperThreads),
           Memory::kBytes, rt::Start::in_order, kCluster},
          int_gemm_wgmma<Shape>, a, maps);
}

// Tiles of 256 tokens minimize reads; if there are groups, their totals leave registers for only
// 128 tokens. uint8 becomes signed bytes in registers.
void launch_bytes(const IntMatmul& a, rt::Stream& stream) {
  const bool grouped = a.segments[0].weight.group > 0 || a.x.group > 0;
  if (a.segments[0].weight.zeros != nullptr) {
    return grouped ? launch<8, 128, 128, true>(a, stream) : launch<8, 0, 128, true>(a, stream);
  }
  if (grouped) return launch<8, 128, 128, false>(a, stream);
  if (a.tokens <= 128) return launch<8, 0, 128, false>(a, stream);
  launch<8, 0, 256, false>(a, stream);
}

}  // namespace

void launch_int_wgmma(const IntMatmul& a, rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits, [&]<int bits>() {
    if constexpr (bits == 8) return launch_bytes(a, stream);
    // Codes of fewer than 8 bits always have groups.
    if constexpr (bits < 8) launch<bits, 128, 128, true>(a, stream);
  });
}

}  // namespace leq::LEQ_GPU
