// The linears of experts for many rows: tiles of int_gemm, each with rows of a single expert.
#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/int_gemm.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
namespace {

static_assert(SmallTile::kTokens == kSmallExpertTile && MiddleTile::kTokens == kExpertTile);

// The arguments of the tile's matmul with the weights of its expert; kept in shared memory.
struct ExpertTile {
  IntMatmul matmul;
  int expert, first_row;
};

// Finds the expert that tile blockIdx.x belongs to; returns false if there are fewer tiles.
template <class Shape>
__device__ __forceinline__ bool find_tile(const ExpertMatmul& a, const ExpertGroups& groups,
                                          ExpertTile& found) {
  const auto tile = static_cast<int>(blockIdx.x), i = static_cast<int>(threadIdx.x);
  if (i == 0) found.expert = -1;
  __syncthreads();
  for (int e = i; e < groups.experts; e += Shape::kThreads) {
    // All four are loaded at once.
    const int first_tile = groups.tiles[e], last_tile = groups.tiles[e + 1];
    const int first = groups.first[e], last = groups.first[e + 1];
    if (tile < first_tile || tile >= last_tile) continue;
    found.expert = e;
    found.first_row = first + (tile - first_tile) * Shape::kTokens;
    IntMatmul& matmul = found.matmul;
    matmul.segment_count = a.matmul.segment_count;
    matmul.tokens = last;
    matmul.columns = a.matmul.columns;
    matmul.x = a.matmul.x;
    matmul.finish = a.matmul.finish;
    matmul.out = a.matmul.out;
  }
  __syncthreads();
  if (found.expert < 0) return false;
  if (i < a.matmul.segment_count) {
    found.matmul.segments[i] = a.segments[found.expert * a.matmul.segment_count + i];
  }
  __syncthreads();
  return true;
}

template <class Shape, int bits, int group>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    expert_gemm(const LEQ_GRID_CONSTANT ExpertMatmul a, const ExpertGroups groups) {
  LEQ_BOUNDS(Shape::kThreads);
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  auto& tile = *reinterpret_cast<ExpertTile*>(memory + GemmMemory<Shape, bits, group>::kBytes);
  ptx::wait_for_predecessor();
  if (!find_tile<Shape>(a, groups, tile)) return;
  GemmRows<Shape> rows(tile.matmul, 0, static_cast<int>(blockIdx.y));
  rows.first_token = tile.first_row;
  multiply_tile<Shape, bits, group>(tile.matmul, rows, memory);
}

template <class Shape, int bits, int group>
void launch_tiles(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream) {
  dim3 blocks = tiles_of<Shape>(a.matmul);
  blocks.x = static_cast<unsigned>(a.rows / Shape::kTokens +
                                   std::min<std::int64_t>(a.rows, groups.experts));
  rt::run(stream,
          {"expert_gemm", blocks, Shape::kThreads,
           GemmMemory<Shape, bits, group>::kBytes + sizeof(ExpertTile), rt::Start::early},
          expert_gemm<Shape, bits, group>, a, groups);
}

template <int bits, int group>
void launch(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream) {
  if (groups.tile_rows == kSmallExpertTile) {
    return launch_tiles<SmallTile, bits, group>(a, groups, stream);
  }
  launch_tiles<MiddleTile, bits, group>(a, groups, stream);
}

}  // namespace

// False for groups of 64, and for fine groups of 3 and 2 bits, for which there are no tile kernels.
bool has_expert_gemm(const IntMatmul& a) {
  const int group = sum_columns(a), bits = a.segments[0].weight.bits;
  return group == 128 || (group == 32 && (bits == 8 || bits == 4)) || (group == 0 && bits == 8);
}

void launch_expert_gemm(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream) {
  launch_by_codes(a.matmul.segments[0].weight, [&]<int bits>() {
    const int group = sum_columns(a.matmul);
    if constexpr (bits == 8) {
      if (group == 0) return launch<bits, 0>(a, groups, stream);
    }
    if constexpr (bits == 8 || kStoredBits<bits> == 4) {
      if (group == 32) return launch<bits, 32>(a, groups, stream);
    }
    if constexpr (bits != kTableBits) launch<bits, 128>(a, groups, stream);
  });
}

}  // namespace leq::LEQ_GPU
