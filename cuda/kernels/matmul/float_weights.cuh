// Weights that are multiplied by f32 activations on tensor cores: 16-bit floats, and codes, which
// are converted to f16. Tiles are in shared memory in stored form; lanes convert them to operand A.
#pragma once

#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/kernels/matmul/gemm_rows.cuh"
#include "cuda/kernels/matmul/packed_codes.cuh"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// Columns of one f32 chain, whose sum is then added to the row's total: 128, or a smaller group.
inline constexpr int kBlockColumns = 128;

// Four 16-bit floats of a row: columns 4 t ... 4 t + 3 of each 16, t = lane % 4. The mma takes them
// as columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9; the terms of activations have the same order.
struct WeightQuad {
  std::uint32_t first, second;
};

// The columns of one f32 chain: a power of two from 32 to 128.
struct Folding {
  int columns = kBlockColumns;
  int of_block = 1;  // chains in 128 columns
  int of_row = 0;    // groups in a row; 0 if the row has one scale

  __device__ __forceinline__ bool begins_at(int column) const {
    return (column & (columns - 1)) == 0;
  }
  // Returns the index of the scale of group `i` of a block of 128 columns.
  __device__ __forceinline__ std::int64_t scale_at(int row, int block, int i) const {
    return of_row == 0 ? row : std::int64_t{row} * of_row + block * of_block + i;
  }
};

// Conversion constants of a group: the f16 number 1024 + zero, twice in a word, and the scale.
struct GroupNumbers {
  float scale;
  std::uint32_t offset;
};

// 16-bit floats. f16 weights are multiplied by inputs of 2 terms, bf16 weights by inputs of 3.
template <int terms>
struct HalfWeights {
  using Arguments = FloatMatmul;
  static constexpr bool kScaled = false;
  static constexpr int kTerms = terms;
  static constexpr int kUnrolled = 1;

  // The layout of rows x columns of weights in shared memory.
  template <int rows, int columns>
  struct Tile {
    static constexpr int kBytes = rows * columns * 2;

    // Offset of a run of 16 columns (32 bytes); runs of four neighbouring rows differ in banks.
    static __device__ __forceinline__ int place(int row, int run) {
      constexpr int kRuns = columns / 16;
      constexpr int kRowsOfLine = kRuns < 4 ? 4 / kRuns : 1;
      return (row * kRuns + (run ^ row / kRowsOfLine % (kRuns < 4 ? kRuns : 4))) * 32;
    }
    // Chunks of 16 bytes in a row; each has eight columns.
    static constexpr int kChunks = columns / 8;
    static __device__ __forceinline__ int chunk_place(int row, int chunk) {
      return place(row, chunk / 2) + chunk % 2 * 16;
    }
    static __device__ __forceinline__ WeightQuad quad(const unsigned char* tile, int row, int run,
                                                      std::uint32_t, std::uint32_t) {
      const auto both = *reinterpret_cast<const uint2*>(tile + place(row, run) +
                                                        static_cast<int>(threadIdx.x % 4) * 8);
      return {both.x, both.y};
    }
  };

  static __device__ __forceinline__ void multiply(float (&sums)[4], const std::uint32_t (&w)[4],
                                                  std::uint32_t x0, std::uint32_t x1) {
    if constexpr (terms == 2) {
      ptx::mma_m16n8k16_f16(sums, w, x0, x1);
    } else {
      ptx::mma_m16n8k16_bf16(sums, w, x0, x1);
    }
  }
  static __device__ const void* stored(const FloatSegment& segment) {
    return segment.weight.values;
  }
  static __device__ int row_bytes(const FloatMatmul& a) {
    return static_cast<int>(float_stride(a.columns)) * 2;
  }
  static __device__ __forceinline__ Folding folding(const FloatMatmul&) { return {}; }
  static __device__ __forceinline__ std::uint32_t flip(const FloatMatmul&) { return 0; }
  static __device__ __forceinline__ float row_scale(const FloatSegment&, std::int64_t) { return 1; }
};

template <int bits>
struct CodeWeights {
  using Arguments = WeightOnlyMatmul;
  static constexpr bool kScaled = true;
  static constexpr int kTerms = 2;
  // Blocks of 32 columns that float_gemm unrolls. One saves registers; at 3 bits there are four,
  // because each block is unpacked differently.
  static constexpr int kUnrolled = bits == 3 ? 4 : 1;

  template <int rows, int columns>
  struct Tile {
    static constexpr int kChunks = columns * bits / 128;  // chunks of 16 bytes in a row
    static constexpr int kBytes = rows * kChunks * 16;
    static_assert(kChunks > 0 && (bits != 3 || columns == 128));

    static __device__ __forceinline__ int chunk_place(int row, int chunk) {
      return swizzled<kChunks>(row, chunk);
    }
    // The lane's word in the 16-byte chunk `chunk` of a row.
    static __device__ __forceinline__ std::uint32_t word(const unsigned char* tile, int row,
                                                         int chunk) {
      const int lane_byte = static_cast<int>(threadIdx.x % 4) * 4;
      return *reinterpret_cast<const std::uint32_t*>(tile + swizzled<kChunks>(row, chunk) +
                                                     lane_byte);
    }
    // Returns four codes as unsigned bytes, as they are stored.
    static __device__ __forceinline__ std::uint32_t code_quad(const unsigned char* tile, int row,
                                                              int run, std::uint32_t flip) {
      if constexpr (bits == 3) {
        const auto of_chunk = [&](int chunk) { return word(tile, row, chunk); };
        return three_bit_quad(run, of_chunk) >> 5 ^ 0x04040404u;
      } else {
        constexpr int kRuns = Packing<bits>::kRuns;
        return dot_quad<bits>({word(tile, row, run / kRuns)}, run % kRuns, flip);
      }
    }
    // float(code - zero) of four codes. It is exact, since f16 has all integers up to 2048.
    static __device__ __forceinline__ WeightQuad quad(const unsigned char* tile, int row, int run,
                                                      std::uint32_t flip, std::uint32_t offset) {
      constexpr std::uint32_t k1024 = 0x64646464u;  // high bytes of the f16 numbers 1024 + code
      const std::uint32_t codes = code_quad(tile, row, run, flip);
      return {ptx::f16x2_sub(ptx::select_bytes(codes, k1024, 0x4140u), offset),
              ptx::f16x2_sub(ptx::select_bytes(codes, k1024, 0x4342u), offset)};
    }
  };

  static __device__ __forceinline__ void multiply(float (&sums)[4], const std::uint32_t (&w)[4],
                                                  std::uint32_t x0, std::uint32_t x1) {
    ptx::mma_m16n8k16_f16(sums, w, x0, x1);
  }
  static __device__ const void* stored(const CodeSegment& segment) { return segment.weight.codes; }
  static __device__ int row_bytes(const WeightOnlyMatmul& a) {
    return static_cast<int>(padded_columns(a.columns)) / 8 * bits;
  }
  static __device__ __forceinline__ Folding folding(const WeightOnlyMatmul& a) {
    const int group = a.segments[0].weight.group;
    if (group == 0) return {};
    return {group, kBlockColumns / group, static_cast<int>(padded_columns(a.columns)) / group};
  }
  // Signed codes q are converted to unsigned codes q + 128.
  static __device__ __forceinline__ bool is_signed(const CodeWeight& weight) {
    return bits == 8 && weight.zeros == nullptr;
  }
  static __device__ __forceinline__ std::uint32_t flip(const WeightOnlyMatmul& a) {
    return is_signed(a.segments[0].weight) ? 0x80808080u : 0u;
  }
  static __device__ __forceinline__ float row_scale(const CodeSegment& segment, std::int64_t row) {
    return segment.weight.group == 0 ? segment.weight.row_scales[row] : 1.0f;
  }

  // The scale's bits and the zero point of group `at`, packed into one word.
  static __device__ __forceinline__ std::uint32_t stored_group(const CodeWeight& weight,
                                                               std::int64_t at) {
    const std::uint32_t scale = weight.group == 0 ? 0 : weight.group_scales[at];
    const int zero = weight.zeros != nullptr ? weight.zeros[at]
                     : is_signed(weight)     ? 128 + weight.zero
                                             : weight.zero;
    return scale | static_cast<std::uint32_t>(zero) << 16;
  }
  static __device__ __forceinline__ GroupNumbers group_numbers(const CodeWeight& weight,
                                                               std::uint32_t stored) {
    const float scale = ptx::f16_to_f32(static_cast<std::uint16_t>(stored));
    return {weight.group == 0 ? 1.0f : scale * weight.scale_mul,
            (0x6400u + (stored >> 16)) * 0x10001u};
  }
};

// Starts copying K tile `k_tile` of the rows of a tile; `threads` threads run this.
template <class Weights, class Tile, int rows, class Rows>
__device__ __forceinline__ void load_tile(const typename Weights::Arguments& a,
                                          const Rows& tile_rows, int k_tile, unsigned char* tile,
                                          int thread, int threads) {
  const int row_bytes = Weights::row_bytes(a);
#pragma unroll
  for (int i = thread; i < rows * Tile::kChunks; i += threads) {
    const int n = i / Tile::kChunks, chunk = i % Tile::kChunks;
    const auto& segment = tile_rows.of(a, n);
    const int row = tile_rows.first + tile_rows.offset(n);
    const int at = (k_tile * Tile::kChunks + chunk) * 16;
    const bool valid = row < segment.rows && at < row_bytes;
    ptx::cp_async16(tile + Tile::chunk_place(n, chunk),
                    static_cast<const std::byte*>(Weights::stored(segment)) +
                        (valid ? std::int64_t{row} * row_bytes + at : 0),
                    valid);
  }
}

// Loads columns 32 block ... 32 block + 31 of rows `own` and own + 8 as operand A of two steps.
template <class Weights, class Tile>
__device__ __forceinline__ void load_operand(const unsigned char* tile, int own, int block,
                                             std::uint32_t flip, const std::uint32_t (&offsets)[2],
                                             std::uint32_t (&w)[2][4]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const WeightQuad quad =
          Tile::quad(tile, own + half * 8, block * 2 + step, flip, offsets[half]);
      w[step][half] = quad.first;
      w[step][half + 2] = quad.second;
    }
  }
}

// Adds the products of 32 columns to the sums of 16 rows and 8 tokens. Products of an output are
// added in steps of 16 columns; within a step, terms are added from the largest to the smallest.
template <class Weights, int row_tiles>
__device__ __forceinline__ void multiply_block(float (&sums)[row_tiles][4],
                                               const std::uint32_t (&w)[row_tiles][2][4],
                                               const uint4 (&x)[Weights::kTerms]) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int term = 0; term < Weights::kTerms; ++term) {
      const std::uint32_t x0 = step == 0 ? x[term].x : x[term].z;
      const std::uint32_t x1 = step == 0 ? x[term].y : x[term].w;
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) Weights::multiply(sums[m], w[m][step], x0, x1);
    }
  }
}

// A row's constants for its outputs, read once.
template <class Weights>
struct FloatRowFinish {
  float scale, bias = 0;
  bool has_bias;

  template <class Segment>
  __device__ __forceinline__ FloatRowFinish(const Segment& segment, std::int64_t row)
      : scale(Weights::row_scale(segment, row)), has_bias(segment.bias != nullptr) {
    if (has_bias) bias = segment.bias[row];
  }
  __device__ __forceinline__ float value(float2 token_scales, float total) const {
    const float y = total * scale * token_scales.x * token_scales.y;
    return has_bias ? y + bias : y;
  }
};

}  // namespace leq::LEQ_GPU
