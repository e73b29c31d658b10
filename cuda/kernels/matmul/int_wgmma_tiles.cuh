// The stages of int_gemm_wgmma, in which its three warpgroups pass K tiles of 128 columns: TMA loads
// tokens and codes, threads load the data of groups, and two warpgroups multiply. Also the order of
// a block's tiles.
#pragma once

#include "cuda/intrinsics/wgmma.h"
#include "cuda/kernels/matmul/int_gemm.cuh"

namespace leq::LEQ_GPU {

// The number of blocks in a cluster. They have different rows and the same tokens, of which each
// block loads a part for both.
inline constexpr int kCluster = 2;

inline constexpr int kMultipliers = 2;  // warpgroups that multiply
inline constexpr int kHopperThreads = 128 * (1 + kMultipliers);
inline constexpr int kBoxBytes = 128;  // bytes of a token in one load

// A tile of 128 rows x `tokens`. The rows are operand A of wgmma, 64 for each warpgroup. group:
// columns of one int32 sum: 128, or 0 for the whole row. zeros: codes may have zero points.
template <int bits, int group, int tokens, bool zeros>
struct HopperShape {
  static constexpr int kBits = bits, kGroup = group, kTokens = tokens, kRows = 128;
  // If there are groups, the tokens are in two parts: the tensor cores multiply one part while the
  // sums of the other are scaled. Operand A is then loaded into registers once for both parts,
  // because 64 rows x 64 tokens from shared memory would use the full bandwidth of shared memory.
  static constexpr int kParts = group == 0 ? 1 : 2;
  // Only signed bytes without groups are read from shared memory; others are unpacked in registers.
  static constexpr bool kThroughRegisters = zeros || group != 0;
  // Signed bytes have no zero points. Zero points of uint8 are subtracted from the sums, using the
  // tokens' sums. Below 8 bits they are subtracted while codes are unpacked (k_tile_quad_less),
  // because a warp unpacks only 16 registers of a K tile but has 64 sums.
  static constexpr bool kMayHaveZeros = zeros;
  static constexpr bool kZerosInCodes = bits < 8, kZerosInSums = kMayHaveZeros && !kZerosInCodes;
  static constexpr int kSums = tokens / 2, kPartSums = kSums / kParts;  // sums of a thread
  static constexpr int kThreads = kHopperThreads;
  static constexpr int kScaleThreads = 64;  // threads of the loading warpgroup
  static_assert(group == 0 || (group == kKTile && tokens == kRows));
  static_assert(bits == 8 || zeros);
};

// Data of a K tile's groups. Scales are divided by the factor of the codes. zero is the negated
// zero point for uint8, which saves a negation per sum, and zero_less below 8 bits.
template <class Shape>
struct HopperGroups {
  float row_scale[Shape::kRows];
  float token_scale[Shape::kTokens];
  std::uint32_t zero[Shape::kRows];
  int token_sum[Shape::kZerosInSums ? Shape::kTokens : 4];
};

// Shared memory of a block: stages, each with a K tile's tokens and codes; the data of each stage's
// groups; output staging; barriers.
template <class Shape>
struct HopperMemory {
  using Groups = HopperGroups<Shape>;
  static constexpr int kRowBytes = Shape::kBits * 16;  // bytes of a row's codes in a K tile
  static constexpr int kTokenBytes = Shape::kTokens * kKTile;
  static constexpr int kStageBytes = kTokenBytes + Shape::kRows * kRowBytes;
  static constexpr int kGroupBytes = Shape::kGroup == 0 ? 0 : static_cast<int>(sizeof(Groups));
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

  __device__ __forceinline__ explicit HopperMemory(unsigned char* dynamic)
      : base(dynamic + (1024 - ptx::shared_address(dynamic) % 1024) % 1024) {}
  __device__ __forceinline__ unsigned char* tokens(int stage) const {
    return base + stage * kStageBytes;
  }
  __device__ __forceinline__ unsigned char* codes(int stage) const {
    return tokens(stage) + kTokenBytes;
  }
  __device__ __forceinline__ Groups& groups(int stage) const {
    return *reinterpret_cast<Groups*>(base + kStages * kStageBytes + stage * kGroupBytes);
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

  __device__ __forceinline__ void init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::barrier_init(full(stage), 1 + (Shape::kGroup == 0 ? 0 : Shape::kScaleThreads));
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
  template <class Shape>
  __device__ __forceinline__ GemmRows<Shape> rows(const IntMatmul& a, int tile) const {
    constexpr int kBand = 8;
    const int band = tile / (kBand * row_tiles) * kBand;
    const int width = min(kBand, token_tiles - band);
    const int in_band = tile - band * row_tiles;
    const auto rank = static_cast<int>(ptx::cluster_rank());
    return GemmRows<Shape>(a, band + in_band % width, in_band / width * kCluster + rank);
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
template <class Shape>
__device__ __forceinline__ void load_rows(const GemmRows<Shape>& rows, const rt::TensorMap* maps,
                                          int column, int row_bytes, unsigned char* to,
                                          ptx::Barrier& full) {
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

// The index of a token's scale, and of its sum, in the data of a K tile. The four tokens of a
// thread in each 16 (two of each eight) are contiguous.
__device__ __forceinline__ int scale_place(int token) {
  return token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

__device__ __forceinline__ bool has_zeros(const IntMatmul& a) {
  return a.segments[0].weight.zeros != nullptr;
}
// log2 of the factor by which unpacked codes are multiplied.
template <class Shape>
__device__ __forceinline__ int code_powers(const IntMatmul& a) {
  constexpr int kSigned = 8 - Shape::kBits, kLess = kZeroPowers<Shape::kBits>;
  return Shape::kZerosInCodes && has_zeros(a) ? kLess : kSigned;
}

// One thread loads all tiles of the block, K tile by K tile.
template <class Shape>
__device__ __forceinline__ void load_tiles(const IntMatmul& a, const HopperMaps& maps,
                                           const HopperMemory<Shape>& memory, int k_tiles) {
  using Memory = HopperMemory<Shape>;
  Ring<Memory::kStages> ring;
  const TileSchedule schedule(maps);
  for (int tile = schedule.first; tile < schedule.end; tile += schedule.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, tile);
    const int first_token = static_cast<int>(rows.first_token);
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile, ring.next()) {
      ptx::Barrier& full = memory.full(ring.stage);
      ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
      ptx::barrier_expect(full, Memory::kStageBytes);
      load_tokens<Shape>(maps.tokens, k_tile * kKTile, first_token, memory.tokens(ring.stage),
                         full);
      load_rows(rows, maps.weights, k_tile * Memory::kRowBytes, Memory::kRowBytes,
                memory.codes(ring.stage), full);
    }
  }
}

// Scales, zero points and sums of a K tile in transit to shared memory; a thread loads those of two
// rows and two tokens. They are converted only when they are stored, because an earlier use would
// wait for the loads.
template <class Shape>
struct KTileScales {
  static constexpr int kEach = Shape::kRows / Shape::kScaleThreads;
  std::uint16_t row_scale[kEach];  // f16
  int zero[kEach];
  float token_scale[kEach];
  int token_sum[kEach];

  __device__ __forceinline__ void load(const IntMatmul& a, const GemmRows<Shape>& rows, int k_tiles,
                                       int k_tile, int thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread + i * Shape::kScaleThreads;
      const CodeSegment& segment = rows.of(a, at);
      const CodeWeight& weight = segment.weight;
      const int n = rows.first + rows.offset(at);
      const std::int64_t group = weight.group > 0 ? std::int64_t{n} * k_tiles + k_tile : n;
      const std::int64_t token = rows.first_token + at;
      row_scale[i] = 0;
      zero[i] = weight.zero;
      if (n < segment.rows && weight.group > 0) row_scale[i] = weight.group_scales[group];
      if (n < segment.rows && weight.zeros != nullptr) zero[i] = weight.zeros[group];
      token_scale[i] = 1.0f;
      token_sum[i] = 0;
      if (token >= a.tokens) continue;
      if (a.x.group > 0) token_scale[i] = a.x.scales[token * a.x.scale_stride + k_tile];
      if (Shape::kZerosInSums) token_sum[i] = a.x.sums[token * a.x.sum_stride + k_tile];
    }
  }
  // `factor` is the reciprocal of the factor of the codes.
  __device__ __forceinline__ void store(const IntMatmul& a, const GemmRows<Shape>& rows,
                                        typename HopperMemory<Shape>::Groups& to, float factor,
                                        int thread) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = thread + i * Shape::kScaleThreads;
      const CodeWeight& weight = rows.of(a, at).weight;
      const float scale =
          weight.group > 0 ? ptx::f16_to_f32(row_scale[i]) * weight.scale_mul : 1.0f;
      to.row_scale[at] = scale * factor;
      to.token_scale[scale_place(at)] = token_scale[i];
      if constexpr (Shape::kZerosInCodes) {
        to.zero[at] = zero_less<Shape::kBits>(zero[i]);
      } else if constexpr (Shape::kZerosInSums) {
        to.zero[at] = static_cast<std::uint32_t>(128 - zero[i]);
        to.token_sum[scale_place(at)] = token_sum[i];
      }
    }
  }
};

// kScaleThreads threads load the scales of the K tiles that load_tiles loads. Loads of several K
// tiles are in flight, because a load takes longer than the multiplications of a K tile.
template <class Shape>
__device__ __forceinline__ void load_scales(const IntMatmul& a, const HopperMaps& maps,
                                            const HopperMemory<Shape>& memory, int k_tiles,
                                            int thread) {
  constexpr int kAhead = 3;
  Ring<HopperMemory<Shape>::kStages> ring;
  const float factor = 1.0f / static_cast<float>(1 << code_powers<Shape>(a));
  const TileSchedule schedule(maps);
  for (int tile = schedule.first; tile < schedule.end; tile += schedule.step) {
    const GemmRows<Shape> rows = maps.rows<Shape>(a, tile);
    KTileScales<Shape> next[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < k_tiles) next[i].load(a, rows, k_tiles, i, thread);
    }
    for (int first = 0; first < k_tiles; first += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int k_tile = first + i;
        if (k_tile >= k_tiles) break;
        ptx::barrier_wait(memory.empty(ring.stage), ring.parity ^ 1);
        next[i].store(a, rows, memory.groups(ring.stage), factor, thread);
        ptx::barrier_arrive(memory.full(ring.stage));
        if (k_tile + kAhead < k_tiles) next[i].load(a, rows, k_tiles, k_tile + kAhead, thread);
        ring.next();
      }
    }
  }
}

}  // namespace leq::LEQ_GPU
