// Packed weight codes in registers. 16 bytes of a row hold 128/b neighbouring columns; at 3 bits 48
// bytes hold 128. Few instructions extract four codes in the form of dp4a and mma (layout.h).
#pragma once

#include <type_traits>

#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// Bits of a code in memory.
template <int bits>
inline constexpr int kStoredBits = bits == kTableBits ? 4 : bits;

// A unit: the fewest 16-byte chunks that hold all bits of their columns (3 at 3 bits, else 1).
template <int bits>
struct Packing {
  static constexpr int kChunks = bits == 3 ? 3 : 1;  // chunks of a unit
  static constexpr int kColumns = bits == 3 ? 128 : 128 / kStoredBits<bits>;
  static constexpr int kRuns = kColumns / 16;  // runs of 16 columns
  static constexpr int kBytes = kChunks * 16;
  static constexpr std::uint32_t kMask =
      bits == 8 ? 0xffffffffu : ((1u << bits) - 1u) * 0x01010101u;
  // dot_quad returns codes as (u - kDotMiddle) * 2^kDotShift.
  static constexpr int kDotShift = bits == 3 ? 5 : 0, kDotMiddle = bits == 3 ? 4 : 0;
};

// Four codes of fewer than 8 bits as signed bytes (u - 2^(b - 1)) * 2^(8 - b), i.e. at the top of
// each byte. Codes without zero points need no further correction.
inline constexpr std::uint32_t kTopBits = 0x80808080u;
template <int bits>
inline constexpr int kSignedFactor = bits == kTableBits ? 1 : 1 << (8 - bits);

// What decodes codes: the bits that signed_quad inverts, or the table.
struct CodeTable {
  std::uint32_t numbers[4];
};
template <int bits>
using Decoder = std::conditional_t<bits == kTableBits, CodeTable, std::uint32_t>;

// The numbers of four codes, one in each half byte of the low 16 bits of `codes`.
__device__ __forceinline__ std::uint32_t table_numbers(const CodeTable& table,
                                                       std::uint32_t codes) {
  const std::uint32_t low = codes & 0x7777u, upper = codes >> 1 & 0x4444u;
  return ptx::select_bytes(ptx::select_bytes(table.numbers[0], table.numbers[1], low),
                           ptx::select_bytes(table.numbers[2], table.numbers[3], low),
                           0x3210u | upper);
}
// The numbers of a run of a word: those of its low or of its high half bytes.
__device__ __forceinline__ std::uint32_t table_quad(const CodeTable& table, std::uint32_t word,
                                                    int run) {
  // Runs 0 and 1 have these two in common.
  const std::uint32_t first = table_numbers(table, word), last = table_numbers(table, word >> 16);
  return ptx::select_bytes(first, last, run == 0 ? 0x6420u : 0x7531u);
}

// Extracts columns 16 run + 4 j ... 16 run + 4 j + 3 of a unit; words[p] is word j of chunk p. flip
// is kTopBits; at 8 bits it is 0 for signed codes, and kTopBits converts unsigned codes u to
// u - 128. flip is opaque (signed_flip), so that one operation masks and flips, because an
// instruction can encode only one constant. Codes of 3 bits are stored as signed numbers.
template <int bits>
__device__ __forceinline__ std::uint32_t signed_quad(
    const std::uint32_t (&words)[Packing<bits>::kChunks], int run, const Decoder<bits>& flip) {
  if constexpr (bits == kTableBits) {
    return table_quad(flip, words[0], run);
  } else if constexpr (bits == 8) {
    return words[0] ^ flip;
  } else if constexpr (bits == 3) {
    return three_bit_quad(run, [&](int chunk) { return words[chunk]; });
  } else {
    const int left = 8 - bits - bits * run;
    const std::uint32_t quad = left >= 0 ? words[0] << left : words[0] >> -left;
    return (quad & Packing<bits>::kMask << (8 - bits)) ^ flip;
  }
}

// Like signed_quad, for a K tile of 128 columns, which has as many chunks as a code has bits; run
// is 0 ... 7.
template <int bits>
__device__ __forceinline__ std::uint32_t k_tile_quad(
    const std::uint32_t (&words)[kStoredBits<bits>], int run, const Decoder<bits>& flip) {
  if constexpr (bits == 3) {
    return signed_quad<3>(words, run, flip);
  } else {
    constexpr int kRuns = Packing<bits>::kRuns;
    return signed_quad<bits>({words[run / kRuns]}, run % kRuns, flip);
  }
}

// Extracts the columns of signed_quad for dp4a: codes u at 4 and 2 bits, else as signed_quad does.
template <int bits>
__device__ __forceinline__ std::uint32_t dot_quad(
    const std::uint32_t (&words)[Packing<bits>::kChunks], int run, const Decoder<bits>& flip) {
  if constexpr (bits == 4 || bits == 2) {
    return words[0] >> bits * run & Packing<bits>::kMask;
  } else {
    return signed_quad<bits>(words, run, flip);
  }
}

// Four codes of a K tile (below 8 bits) minus a zero point z, as signed bytes (u - z) times
// 2^kZeroPowers; products need no correction for zero points. less is zero_less(z). No byte
// carries into the next, since u + 128 - z (all scaled by the same power) is within 0 ... 255.
template <int bits>
inline constexpr int kZeroPowers = bits == 3 ? 4 : 0;
template <int bits>
__device__ __forceinline__ std::uint32_t zero_less(int zero) {
  return kTopBits - static_cast<std::uint32_t>(zero << kZeroPowers<bits>) * 0x01010101u;
}
template <int bits>
__device__ __forceinline__ std::uint32_t k_tile_quad_less(const std::uint32_t (&words)[bits],
                                                          int run, std::uint32_t less) {
  std::uint32_t codes = 0;  // scaled by 2^kZeroPowers
  if constexpr (bits == 3) {
    codes = (signed_quad<3>(words, run, 0) >> 1) ^ 0x40404040u;
  } else {
    constexpr int kRuns = Packing<bits>::kRuns;
    codes = dot_quad<bits>({words[run / kRuns]}, run % kRuns, 0);
  }
  return (codes + less) ^ kTopBits;
}

// A unit of a row, loaded into registers.
template <int bits>
struct Unit {
  uint4 chunks[Packing<bits>::kChunks];

  __device__ __forceinline__ static std::uint32_t word(const uint4& chunk, int j) {
    return j == 0 ? chunk.x : j == 1 ? chunk.y : j == 2 ? chunk.z : chunk.w;
  }
  __device__ __forceinline__ std::uint32_t quad(int run, int j, const Decoder<bits>& flip) const {
    std::uint32_t words[Packing<bits>::kChunks];
#pragma unroll
    for (int p = 0; p < Packing<bits>::kChunks; ++p) words[p] = word(chunks[p], j);
    return dot_quad<bits>(words, run, flip);
  }
  // For 4 and 2 bits: unsigned codes at their position within the bytes, i.e. times 2^(bits run).
  __device__ __forceinline__ std::uint32_t quad_in_place(int run, int j) const {
    static_assert(bits == 4 || bits == 2);
    return word(chunks[0], j) & Packing<bits>::kMask << bits * run;
  }
};

// At 3 bits a lane reads 48 bytes through the L1 cache, whose lines neighbouring lanes share.
template <int bits>
__device__ __forceinline__ Unit<bits> load_unit(const std::uint8_t* from) {
  Unit<bits> unit;
  if constexpr (bits == 3) {
#pragma unroll
    for (int p = 0; p < 3; ++p) unit.chunks[p] = reinterpret_cast<const uint4*>(from)[p];
  } else {
    unit.chunks[0] = ptx::load_once(from);
  }
  return unit;
}

// Returns the byte offset of unit `index` in a row of `columns` columns, a multiple of 128.
template <int bits>
__device__ __forceinline__ std::int64_t unit_at(std::int64_t row, int columns, int index) {
  return row * columns * kStoredBits<bits> / 8 + std::int64_t{index} * Packing<bits>::kBytes;
}

}  // namespace leq::LEQ_GPU
