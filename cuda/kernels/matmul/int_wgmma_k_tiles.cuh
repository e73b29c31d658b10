// What a block of int_gemm_wgmma brings of a K tile of 128 columns: tokens and codes by the copy
// engine, what groups need by threads.
#pragma once

#include "cuda/kernels/matmul/hopper_tiles.cuh"
#include "cuda/kernels/matmul/int_gemm.cuh"

namespace leq::LEQ_GPU {

// A tile of 128 rows x `tokens`. The rows are operand A of wgmma, 64 for each warpgroup.
// group: columns of one int32 sum, 128, or 0 for the row. zeros: codes may have zero points.
template <int bits, int group, int tokens, bool zeros>
struct HopperShape {
  static constexpr int kBits = bits, kGroup = group, kTokens = tokens, kRows = 128;
  // With groups the tokens are two parts: the tensor cores multiply one while the sums of the other
  // are scaled. Operand A then comes through registers, which are read once for both: from shared
  // memory, 64 rows for 64 tokens, operands take all that it delivers.
  static constexpr int kParts = group == 0 ? 1 : 2;
  // Signed bytes of one part as they lie in shared memory; other codes are unpacked on the way.
  static constexpr bool kThroughRegisters = zeros || group != 0;
  // Signed bytes have no zero points; those of uint8 leave the sums, by the sums of the tokens'
  // codes. Codes below 8 bits leave theirs while they are unpacked (k_tile_quad_less): a warp
  // unpacks 16 registers of a K tile, and has 64 sums of it.
  static constexpr bool kMayHaveZeros = zeros;
  static constexpr bool kZerosInCodes = bits < 8, kZerosInSums = kMayHaveZeros && !kZerosInCodes;
  static constexpr int kSums = tokens / 2, kPartSums = kSums / kParts;  // of a thread
  static constexpr int kThreads = kHopperThreads;
  static constexpr int kScaleThreads = 64;  // of the fetching warpgroup
  static_assert(group == 0 || (group == kKTile && tokens == kRows));
  static_assert(bits == 8 || zeros);
};

// Scales over what codes are multiplied by. zero: of uint8 its negative, so that nothing is turned
// over for each sum; below 8 bits zero_less.
template <class Shape>
struct HopperGroups {
  float row_scale[Shape::kRows];
  float token_scale[Shape::kTokens];
  std::uint32_t zero[Shape::kRows];
  int token_sum[Shape::kZerosInSums ? Shape::kTokens : 4];
};

// A stage: a K tile's tokens, then its codes.
template <class Shape>
struct HopperMemory
    : StageMemory<Shape::kTokens * kKTile + Shape::kRows * Shape::kBits * 16,
                  Shape::kGroup == 0 ? 0 : static_cast<int>(sizeof(HopperGroups<Shape>))> {
  using HopperMemory::StageMemory::StageMemory;
  using Groups = HopperGroups<Shape>;
  static constexpr int kRowBytes = Shape::kBits * 16;  // of codes in a K tile
  static constexpr int kTokenBytes = Shape::kTokens * kKTile;

  __device__ __forceinline__ unsigned char* tokens(int stage) const { return this->stage(stage); }
  __device__ __forceinline__ unsigned char* codes(int stage) const {
    return tokens(stage) + kTokenBytes;
  }
  __device__ __forceinline__ Groups& groups(int stage) const {
    return *reinterpret_cast<Groups*>(this->group_bytes(stage));
  }
  __device__ __forceinline__ void init() const {
    this->init_barriers(1 + (Shape::kGroup == 0 ? 0 : Shape::kScaleThreads));
  }
};

// Where the scale of a token lies among those of a K tile, and its sum: four of a thread lie
// together, those of eight tokens and of the next eight.
__device__ __forceinline__ int scale_place(int token) {
  return token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

__device__ __forceinline__ bool has_zeros(const IntMatmul& a) {
  return a.segments[0].weight.zeros != nullptr;
}
// What codes are multiplied by, as a power of two.
template <class Shape>
__device__ __forceinline__ int code_powers(const IntMatmul& a) {
  constexpr int kSigned = 8 - Shape::kBits, kLess = kZeroPowers<Shape::kBits>;
  return Shape::kZerosInCodes && has_zeros(a) ? kLess : kSigned;
}

// One thread: all tiles of the block, K tile by K tile.
template <class Shape>
__device__ __forceinline__ void load_tiles(const IntMatmul& a, const HopperMaps& maps,
                                           const HopperMemory<Shape>& memory, int k_tiles) {
  using Memory = HopperMemory<Shape>;
  Ring<Memory::kStages> ring;
  const TileSchedule walk(maps);
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
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

// Scales, zero points and sums of a K tile on their way to shared memory: a thread brings those of
// two rows and two tokens. They stay as they are read until they are stored: what looks at them
// earlier waits for the memory.
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
  // `factor`: one over that of the codes.
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

// The same K tiles, by kScaleThreads threads. Reads of several are under way at a time: each takes
// longer than a K tile's multiplications.
template <class Shape>
__device__ __forceinline__ void load_scales(const IntMatmul& a, const HopperMaps& maps,
                                            const HopperMemory<Shape>& memory, int k_tiles,
                                            int thread) {
  constexpr int kAhead = 3;
  Ring<HopperMemory<Shape>::kStages> ring;
  const float factor = 1.0f / static_cast<float>(1 << code_powers<Shape>(a));
  const TileSchedule walk(maps);
  for (int tile = walk.first; tile < walk.end; tile += walk.step) {
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
