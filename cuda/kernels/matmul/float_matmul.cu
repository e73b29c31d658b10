// Selects the kernel for matmuls of f32 activations.
#include "cuda/kernels/matmul/float_matmul.h"

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/float_rows.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
namespace {

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    float_rows(const LEQ_GRID_CONSTANT FloatMatmul a) {
  LEQ_BOUNDS(Shape::kThreads);
  float_rows_block<Shape>(a);
}

void launch_rows(const FloatMatmul& a, rt::Stream& stream) {
  for_float_rows(a, [&]<class Shape>(Shape, dim3 blocks) {
    rt::run(stream, {"float_rows", blocks, Shape::kThreads, Shape::kBytes, rt::Start::early},
            float_rows<Shape>, a);
  });
}

template <class Arguments>
FloatTile tile_for(const Arguments& a) {
  // Reading weights twice (the second time from L2) is cheaper than tiles that are mostly empty.
  constexpr std::int64_t kFewTokens = 16;
  // Large tiles minimize reads, but each multiprocessor should have at least about one tile.
  constexpr std::int64_t kEnoughTiles = 100;
  if (a.tokens <= kFewTokens) return FloatTile::few;
  const std::int64_t large = div_up(a.tokens, 128) * div_up(outputs_of(a), 128);
  return large < kEnoughTiles ? FloatTile::middle : FloatTile::large;
}

}  // namespace

void launch_float_matmul(const FloatMatmul& a, rt::Stream& stream) {
  if (a.segments[0].weight.type == FloatType::f32) return launch_rows(a, stream);
  launch_float_gemm(a, tile_for(a), stream);
}

void launch_weight_only_matmul(const WeightOnlyMatmul& a, rt::Stream& stream) {
  launch_float_gemm(a, tile_for(a), stream);
}

const char* describe_float_matmul(bool f32_weights) {
  return f32_weights ? "fma chains" : "mma of terms";
}

}  // namespace leq::LEQ_GPU
