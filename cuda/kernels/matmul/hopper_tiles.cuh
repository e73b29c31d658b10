// Code shared by the matmuls on wgmma. A block has three warpgroups: one loads tiles by TMA, and
// two multiply them. Defines the stages that all three share, and the order of a block's tiles.
#pragma once

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/wgmma.h"
#include "cuda/kernels/matmul/gemm_rows.cuh"

namespace leq::LEQ_GPU {

// The number of blocks in a cluster. They have different rows and the same tokens, of which each
// block loads a part for both.
inline constexpr int kCluster = 2;

inline constexpr int kMultipliers = 2;  // warpgroups that multiply
inline constexpr int kHopperThreads = 128 * (1 + kMultipliers);
inline constexpr int kBoxBytes = 128;  // bytes of a token in one load

// Shared memory of a block: stages, the groups' data of each stage, output staging, barriers.
template <int stage_bytes, int bytes_of_groups>
struct StageMemory {
  static constexpr int kStageBytes = stage_bytes, kGroupBytes = bytes_of_groups;
  static_assert(kStageBytes % 1024 == 0, "where 128-byte order begins");

  // Output staging of a warp: 32 tokens x 16 rows, with a stride that avoids bank conflicts.
  static constexpr int kOutTokens = 32, kOutRows = 16, kOutStride = 20;
  static constexpr int kOutBytes = kOutTokens * kOutStride * 4 * 4 * kMultipliers;

  static constexpr int kMaxBytes = (227 << 10) - 1024 - kOutBytes - 256;
  static constexpr int kFitting = kMaxBytes / (kStageBytes + kGroupBytes);
  static constexpr int kStages = kFitting < 8 ? kFitting : 8;
  // The first 1,024 bytes are for rounding the address up to a multiple of 1,024.
  static constexpr int kBytes =
      1024 + kStages * (kStageBytes + kGroupBytes) + kOutBytes + kStages * 16;

  unsigned char* base;

  __device__ __forceinline__ explicit StageMemory(unsigned char* dynamic)
      : base(dynamic + (1024 - ptx::shared_address(dynamic) % 1024) % 1024) {}
  __device__ __forceinline__ unsigned char* stage(int i) const { return base + i * kStageBytes; }
  __device__ __forceinline__ unsigned char* group_bytes(int stage) const {
    return base + kStages * kStageBytes + stage * kGroupBytes;
  }
  __device__ __forceinline__ int* out(int warp) const {
    return reinterpret_cast<int*>(base + kStages * (kStageBytes + kGroupBytes)) +
           warp * kOutTokens * kOutStride;
  }
  // A stage is full when its bytes and the data of its groups have arrived, and empty when all
  // warps of the cluster have read it.
  __device__ __forceinline__ ptx::Barrier& full(int stage) const {
    return reinterpret_cast<ptx::Barrier*>(base + kBytes - 1024 - kStages * 16)[stage];
  }
  __device__ __forceinline__ ptx::Barrier& empty(int stage) const { return full(kStages + stage); }

  // A stage becomes full after `arrivals` arrivals and the arrival of its bytes.
  __device__ __forceinline__ void init_barriers(unsigned arrivals) const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::barrier_init(full(stage), arrivals);
      ptx::barrier_init(empty(stage), 4 * kMultipliers * kCluster);
    }
    ptx::fence_init();
  }
  // Called by a whole warp: signals to both blocks of the cluster that the warp has read the stage.
  __device__ __forceinline__ void release(int stage) const {
    __syncwarp();
    const auto lane = static_cast<int>(threadIdx.x % 32);
    if (lane >= kCluster) return;
    ptx::barrier_arrive_at(empty(stage), static_cast<unsigned>(lane));
  }
};

// The current stage of the ring buffer, and the parity of its barriers' current phase.
template <int stages>
struct Ring {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next() {
    const bool wraps = stage == stages - 1;
    stage = wraps ? 0 : stage + 1;
    parity ^= wraps ? 1u : 0u;
  }
};

// The tensor maps of the operands, and the numbers of tiles of the output.
struct HopperMaps {
  rt::TensorMap tokens;
  rt::TensorMap weights[kMaxSegments];
  int token_tiles, row_tiles;  // row_tiles: counted in tiles of a cluster

  // The rows of tile number `tile`. Tiles are ordered in bands of 8 token tiles x all rows, so that
  // concurrent tiles share operands. If a block's tile is past the last row, it has no rows.
  template <class Shape, class Arguments>
  __device__ __forceinline__ GemmRows<Shape, Arguments> rows(const Arguments& a, int tile) const {
    constexpr int kBand = 8;
    const int band = tile / (kBand * row_tiles) * kBand;
    const int width = min(kBand, token_tiles - band);
    const int in_band = tile - band * row_tiles;
    const auto rank = static_cast<int>(ptx::cluster_rank());
    return GemmRows<Shape, Arguments>(a, band + in_band % width, in_band / width * kCluster + rank);
  }
};

// The tiles of a cluster's blocks: first, first + step, ... before end.
struct TileSchedule {
  int first, step, end;

  __device__ __forceinline__ explicit TileSchedule(const HopperMaps& maps)
      : first(static_cast<int>(blockIdx.x) / kCluster),
        step(static_cast<int>(gridDim.x) / kCluster),
        end(maps.token_tiles * maps.row_tiles) {}
};

// Starts loading the weights of a tile's rows from byte `column` on. If gated, rows of gate and
// of up alternate in groups of eight.
template <class Shape, class Arguments>
__device__ __forceinline__ void load_rows(const GemmRows<Shape, Arguments>& rows,
                                          const rt::TensorMap* maps, int column, int row_bytes,
                                          unsigned char* to, ptx::Barrier& full) {
  if (!rows.paired) return ptx::tensor_load(to, maps[rows.segment], column, rows.first, full);
  for (int n = 0; n < Shape::kRows; n += 8) {
    ptx::tensor_load(to + n * row_bytes, maps[n / 8 % 2], column, rows.first + n / 16 * 8, full);
  }
}

// Loads this block's part of 128 bytes of each token, for all blocks of the cluster.
template <class Shape>
__device__ __forceinline__ void load_tokens(const rt::TensorMap& map, int column, int first_token,
                                            unsigned char* to, ptx::Barrier& full) {
  constexpr int kPart = Shape::kTokens / kCluster;
  constexpr unsigned kAll = (1u << kCluster) - 1;
  const int first = static_cast<int>(ptx::cluster_rank()) * kPart;
  ptx::tensor_load_to(kAll, to + first * kBoxBytes, map, column, first_token + first, full);
}

}  // namespace leq::LEQ_GPU
