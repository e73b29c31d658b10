// The linears of experts for many rows: tiles of int_gemm, each with rows of a single expert.
#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/kernels/matmul/int_gemm_launch.cuh"

namespace leq::LEQ_GPU {
namespace {

static_assert(MiddleTile::kTokens == kExpertTile);

// The arguments of the tile's matmul with the weights of its expert; kept in shared memory.
struct ExpertTile {
  IntMatmul matmul;
  int expert, first_row;
};

// Finds the expert that tile blockIdx.x belongs to; returns false if there are fewer tiles.
__device__ __forceinline__ bool find_tile(const ExpertMatmul& a, const ExpertGroups& groups,
                                          ExpertTile& found) {
  const auto tile = static_cast<int>(blockIdx.x);
  if (tile >= groups.tiles[groups.experts]) return false;
  for (int e = static_cast<int>(threadIdx.x); e < groups.experts; e += MiddleTile::kThreads) {
    const int first = groups.tiles[e];
    if (tile < first || tile >= groups.tiles[e + 1]) continue;
    found.expert = e;
    found.first_row = groups.first[e] + (tile - first) * kExpertTile;
    found.matmul = a.matmul;
    found.matmul.tokens = groups.first[e + 1];
  }
  __syncthreads();
  const auto i = static_cast<int>(threadIdx.x);
  if (i < a.matmul.segment_count) {
    found.matmul.segments[i] = a.segments[found.expert * a.matmul.segment_count + i];
  }
  __syncthreads();
  return true;
}

template <int bits, int group>
__global__ void __launch_bounds__(MiddleTile::kThreads, 1)
    expert_gemm(const LEQ_GRID_CONSTANT ExpertMatmul a, const ExpertGroups groups) {
  LEQ_BOUNDS(MiddleTile::kThreads);
  LEQ_DYNAMIC_SHARED(unsigned char, memory);
  auto& tile = *reinterpret_cast<ExpertTile*>(memory + GemmMemory<MiddleTile, bits, group>::kBytes);
  ptx::wait_for_predecessor();
  if (!find_tile(a, groups, tile)) return;
  GemmRows<MiddleTile> rows(tile.matmul, 0, static_cast<int>(blockIdx.y));
  rows.first_token = tile.first_row;
  multiply_tile<MiddleTile, bits, group>(tile.matmul, rows, memory);
}

template <int bits, int group>
void launch(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream) {
  dim3 blocks = tiles_of<MiddleTile>(a.matmul);
  blocks.x =
      static_cast<unsigned>(a.rows / kExpertTile + std::min<std::int64_t>(a.rows, groups.experts));
  rt::run(stream,
          {"expert_gemm", blocks, dim3(MiddleTile::kThreads),
           GemmMemory<MiddleTile, bits, group>::kBytes + sizeof(ExpertTile), rt::Start::early},
          expert_gemm<bits, group>, a, groups);
}

}  // namespace

// False for groups of 64, and for fine groups of 3 and 2 bits, for which there are no tile kernels.
bool has_expert_gemm(const IntMatmul& a) {
  const int group = sum_columns(a), bits = a.segments[0].weight.bits;
  return group == 128 || (group == 32 && (bits == 8 || bits == 4)) || (group == 0 && bits == 8);
}

void launch_expert_gemm(const ExpertMatmul& a, const ExpertGroups& groups, rt::Stream& stream) {
  if (a.rows <= 0) return;
  launch_by_bits(a.matmul.segments[0].weight.bits, [&]<int bits>() {
    const int group = sum_columns(a.matmul);
    if constexpr (bits == 8) {
      if (group == 0) return launch<bits, 0>(a, groups, stream);
    }
    if constexpr (bits == 8 || bits == 4) {
      if (group == 32) return launch<bits, 32>(a, groups, stream);
    }
    launch<bits, 128>(a, groups, stream);
  });
}

}  // namespace leq::LEQ_GPU
