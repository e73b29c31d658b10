// The loads of a K tile of 128 columns in int_gemm, and the layouts from which warps read tokens,
// codes, and the data of groups.
#pragma once

#include <cstring>
#include <type_traits>

#include "cuda/kernels/matmul/gemm_rows.cuh"
#include "cuda/kernels/matmul/matmul_finish.cuh"
#include "cuda/kernels/matmul/packed_codes.cuh"

namespace leq::LEQ_GPU {

inline constexpr int kKTile = 128;  // columns

// A tile of kTokens x kRows, divided among kWarpsDown x kWarpsAcross warps. If gated, half of the
// rows are rows of gate and half rows of up, alternating in groups of eight.
template <int tokens, int rows, int warps_down, int warps_across, int stages>
struct GemmShape {
  static constexpr int kTokens = tokens, kRows = rows, kStages = stages;
  static constexpr int kDown = warps_down, kAcross = warps_across;
  static constexpr int kThreads = 32 * warps_down * warps_across;
  static constexpr int kMmaDown = tokens / warps_down / 16;  // mma tiles of 16 tokens in a warp
  static constexpr int kMmaAcross = rows / warps_across / 8;
  static_assert(kMmaDown >= 1 && kMmaAcross % 2 == 0 && kThreads >= rows && kThreads >= tokens);
};

// The order of rows and tokens by lane. In an mma a lane has rows 2 * p and 2 * p + 1 of each
// eight rows of its warp, where p = lane % 4, and token lane / 4 of each eight. Their scales, zero
// points and sums are contiguous in shared memory, so that a lane reads them as vectors.
template <class Shape>
struct LaneOrder {
  static constexpr int kRows = 2 * Shape::kMmaAcross, kTokens = 2 * Shape::kMmaDown;  // of a lane

  // Returns where the data of row n, or of token t, of the block's tile is in shared memory.
  static __device__ __forceinline__ int row(int n) {
    return n / (4 * kRows) * (4 * kRows) + n % 8 / 2 * kRows + n / 8 % Shape::kMmaAcross * 2 +
           n % 2;
  }
  static __device__ __forceinline__ int token(int t) {
    return t / (8 * kTokens) * (8 * kTokens) + t % 8 * kTokens + t / 8 % kTokens;
  }
};
// Reads `count` numbers of one lane with the widest possible loads.
template <class T, int count>
struct LaneRun {
  T values[count];

  __device__ __forceinline__ explicit LaneRun(const T* from) {
    constexpr int kBytes = count * static_cast<int>(sizeof(T));
    std::memcpy(values, __builtin_assume_aligned(from, kBytes < 16 ? kBytes : 16), kBytes);
  }
  __device__ __forceinline__ T operator[](int i) const { return values[i]; }
};

// Shared memory of the kernel: stages with the tokens and codes of a K tile each, then two sets of
// the data of a K tile's groups (double-buffered).
template <class Shape, int bits, int group>
struct GemmMemory {
  static constexpr int kTokenBytes = Shape::kTokens * kKTile;
  static constexpr int kStageBytes = kTokenBytes + Shape::kRows * kStoredBits<bits> * 16;
  static constexpr int kGroups = group == 0 ? 0 : kKTile / group;
  // Codes below 8 bits are multiplied as signed bytes, scaled by kFactor (packed_codes.cuh).
  static constexpr int kFactor = kSignedFactor<bits>, kMiddle = bits >= 8 ? 0 : 1 << (bits - 1);
  // Zero points times kFactor, and sums of at most 128 codes, fit into 16 bits, which saves memory
  // in large tiles; readers widen them. Zero points are negated, so that they can be added. Scales
  // are divided by kFactor. Rows and tokens are in LaneOrder.
  using Integer = std::conditional_t<(Shape::kTokens > 64), std::int16_t, int>;
  struct alignas(16) Groups {
    float row_scale[kGroups > 0 ? kGroups : 1][Shape::kRows];
    float token_scale[kGroups > 0 ? kGroups : 1][Shape::kTokens];
    Integer less_zero[kGroups > 0 ? kGroups : 1][Shape::kRows];
    Integer token_sum[kGroups > 0 ? kGroups : 1][Shape::kTokens];
  };
  static constexpr int kGroupsAt = Shape::kStages * kStageBytes;
  static constexpr int kBytes = kGroupsAt + (group == 0 ? 0 : 2 * static_cast<int>(sizeof(Groups)));
};

template <class Shape>
struct TokenCopies : InputCopies<Shape, 8> {
  __device__ __forceinline__ TokenCopies(const IntMatmul& a, const GemmRows<Shape>& rows)
      : TokenCopies::InputCopies(a.x.codes, a.x.code_stride, rows.first_token, a.tokens,
                                 swizzled<8>(TokenCopies::row(), TokenCopies::chunk())) {}
};
template <class Shape, int bits>
struct CodeCopies : SegmentCopies<Shape, kStoredBits<bits>> {
  __device__ __forceinline__ CodeCopies(const IntMatmul& a, const GemmRows<Shape>& rows,
                                        int k_tiles)
      : CodeCopies::SegmentCopies(
            a, rows, k_tiles * (kStoredBits<bits> * 16),
            swizzled<kStoredBits<bits>>(CodeCopies::row(), CodeCopies::chunk()),
            [](const CodeSegment& segment) -> const void* { return segment.weight.codes; }) {}
};

// The codes of a warp's rows in one K tile, in memory layout: word t of each 16-byte chunk.
template <class Shape, int bits>
struct KTileCodes {
  static constexpr int kAcross = Shape::kMmaAcross;
  // The words that a lane has at a time: at 8 bits the two chunks of a step, else the whole K tile.
  static constexpr int kChunks = kStoredBits<bits>, kHeld = bits == 8 ? 2 : kChunks;
  std::uint32_t words[kAcross][kHeld];

  static constexpr int kTiles = 4 / kHeld;                         // 8-row tiles per ldmatrix
  static constexpr int kTilesOfThree = kAcross < 4 ? kAcross : 4;  // for 3 bits

  // The offset of a lane's first read in a K tile's codes; its other reads are at constant
  // distances. `row` is the warp's first row in the tile.
  static __device__ __forceinline__ int place(int row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int tile = bits == 3 ? lane / 8 % kTilesOfThree : lane / 8 / kHeld;
    const int chunk = bits == 3 ? lane / 8 / kTilesOfThree : lane / 8 % kHeld;
    return swizzled<kChunks>(row + tile * 8 + lane % 8, chunk);
  }
  // Loads chunks from `first` on; `first` is even.
  __device__ __forceinline__ void load(const unsigned char* codes, int place, int first) {
#pragma unroll
    for (int j = 0; j < kAcross; j += kTiles) {
      std::uint32_t found[4];
      ptx::ldmatrix_x4(found, codes + (place ^ first * 16) + j * 8 * kChunks * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[j + i / kHeld][i % kHeld] = found[i];
    }
  }
  // Loads three chunks: first chunk 0 of all rows, then chunk 1, then chunk 2.
  __device__ __forceinline__ void load_three(const unsigned char* codes, int place) {
    constexpr int kMatrices = kAcross * 3;
#pragma unroll
    for (int j = 0; j < kMatrices; j += 4) {
      // Lanes beyond the last chunk repeat the reads of other lanes.
      const int past = j + 4 > kMatrices ? static_cast<int>(threadIdx.x) / 16 % 2 * 16 : 0;
      const int at = j % kAcross * 8 * bits * 16 + j / kAcross * 16;
      std::uint32_t found[4];
      ptx::ldmatrix_x4(found, codes + place + at - past);
#pragma unroll
      for (int i = j; i < j + 4 && i < kMatrices; ++i) {
        words[i % kAcross][i / kAcross] = found[i - j];
      }
    }
  }

  // Operand B of mma tile j: columns 32 step ... 32 step + 31 of the K tile.
  __device__ __forceinline__ void operand(int j, int step, const Decoder<bits>& flip,
                                          std::uint32_t (&b)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (bits == 8) {
        b[half] = words[j][half] ^ flip;
      } else {
        b[half] = k_tile_quad<bits>(words[j], step * 2 + half, flip);
      }
    }
  }
};

// Scales, zero points and sums of a K tile's groups, in transit from global to shared memory. Each
// of `threads` threads loads those of one row or of one token, or of both if there are fewer
// threads than rows and tokens. Threads without a row or token load the last existing one.
template <class Shape, int bits, int group, int threads = Shape::kThreads>
struct KTileGroups {
  using Memory = GemmMemory<Shape, bits, group>;
  static constexpr int kFirstToken = threads >= Shape::kRows + Shape::kTokens ? Shape::kRows : 0;
  static constexpr int kZeroMiddle = bits == 8 ? 128 : Memory::kMiddle;
  int thread, flags, row_place, token_place;
  int shift, token_shift;  // log2 of the group size of weights, and of tokens
  const std::uint16_t* scales;
  const std::uint8_t* zeros;
  const float* token_scales;
  const int* token_sums;
  float scale_mul;  // divided by kFactor
  // These remain in stored form until the next K tile, because converting would wait for loads.
  std::uint16_t scale[Memory::kGroups] = {};
  int zero[Memory::kGroups] = {}, token_sum[Memory::kGroups] = {};
  float token_scale[Memory::kGroups] = {};

  __device__ __forceinline__ KTileGroups(const IntMatmul& a, const GemmRows<Shape>& rows,
                                         int number)
      : thread(ptx::opaque(static_cast<unsigned>(number))),
        flags(ptx::opaque(flags_of(a))),
        row_place(ptx::opaque(static_cast<unsigned>(LaneOrder<Shape>::row(number)))),
        token_place(ptx::opaque(
            static_cast<unsigned>(LaneOrder<Shape>::token(max(number - kFirstToken, 0))))) {
    const Grouping grouping(a);
    const CodeSegment& segment = rows.of(a, number);
    const auto last = static_cast<int>(segment.rows) - 1;
    const std::int64_t row = min(rows.first + rows.offset(number), last);
    shift = group_shift(grouping.weight_group);
    token_shift = group_shift(grouping.token_group);
    const std::int64_t at = row * (grouping.columns >> shift);
    scales = ptx::opaque(segment.weight.group_scales + at);
    zeros = ptx::opaque(segment.weight.zeros + (has(kScales) ? at : row));
    scale_mul = has(kScales) ? segment.weight.scale_mul : 1.0f;
    scale_mul *= 1.0f / Memory::kFactor;
    const std::int64_t token = rows.first_token + max(number - kFirstToken, 0);
    const std::int64_t there = token < a.tokens ? token : a.tokens - 1;
    token_scales = ptx::opaque(a.x.scales + there * a.x.scale_stride);
    token_sums = ptx::opaque(a.x.sums + there * a.x.sum_stride);
  }

  __device__ __forceinline__ void load(int k_tile) {
    // Pointers are not advanced, because this would cost instructions even if they are not used.
    const int at = ptx::opaque(static_cast<unsigned>(k_tile));
    for_sides([&] { load_row(at); }, [&] { load_token(at); });
  }
  __device__ __forceinline__ void store(typename Memory::Groups& to) const {
    for_sides([&] { store_row(to); }, [&] { store_token(to); });
  }

 private:
  static constexpr int kScales = 1, kTokenScales = 2, kZeros = 4;
  static __device__ __forceinline__ unsigned flags_of(const IntMatmul& a) {
    return (a.segments[0].weight.group > 0 ? kScales : 0) | (a.x.group > 0 ? kTokenScales : 0) |
           (a.segments[0].weight.zeros != nullptr ? kZeros : 0);
  }
  __device__ __forceinline__ bool has(int what) const { return (flags & what) != 0; }

  template <class Row, class Token>
  __device__ __forceinline__ void for_sides(Row row, Token token) const {
    constexpr int kTokensEnd = kFirstToken + Shape::kTokens;
    if constexpr (kFirstToken > 0) {
      if (thread < Shape::kRows) {
        row();
      } else if (kTokensEnd == threads || thread < kTokensEnd) {
        token();
      }
    } else {
      if (thread < Shape::kRows) row();
      if (thread < kTokensEnd) token();
    }
  }
  __device__ __forceinline__ void load_row(int k_tile) {
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      const int at = (k_tile * kKTile + g * group) >> shift;
      scale[g] = 0x3c00;  // 1
      if (has(kScales)) scale[g] = scales[at];
      if (has(kZeros)) zero[g] = zeros[has(kScales) ? at : 0];
    }
  }
  __device__ __forceinline__ void load_token(int k_tile) {
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      // If the K tile is one group, a token has one scale for these 128 columns.
      const int at = Memory::kGroups == 1 ? k_tile : (k_tile * kKTile + g * group) >> token_shift;
      token_scale[g] = has(kTokenScales) ? token_scales[at] : 1.0f;
      if (has(kZeros)) token_sum[g] = token_sums[k_tile * Memory::kGroups + g];
    }
  }
  __device__ __forceinline__ void store_row(typename Memory::Groups& to) const {
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      to.row_scale[g][row_place] = ptx::f16_to_f32(scale[g]) * scale_mul;
      if (has(kZeros)) {
        to.less_zero[g][row_place] =
            static_cast<typename Memory::Integer>((kZeroMiddle - zero[g]) * Memory::kFactor);
      }
    }
  }
  __device__ __forceinline__ void store_token(typename Memory::Groups& to) const {
#pragma unroll
    for (int g = 0; g < Memory::kGroups; ++g) {
      to.token_scale[g][token_place] = token_scale[g];
      if (has(kZeros))
        to.token_sum[g][token_place] = static_cast<typename Memory::Integer>(token_sum[g]);
    }
  }
};

// Replaces KTileGroups if sums are over whole rows.
struct NoGroups {
  template <class Rows>
  __device__ __forceinline__ NoGroups(const IntMatmul&, const Rows&, int) {}
};

}  // namespace leq::LEQ_GPU
