// Packed weight codes in registers: 16 bytes of a row hold 128/b neighbouring columns, 48 bytes of
// 3 bits 128 of them; few instructions give four codes of it, as dp4a and mma want them (layout.h).
#pragma once

#include "cuda/intrinsics/ptx.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

// A unit: chunks of 16 bytes that hold whole columns of a row. 128 columns are `bits` chunks.
template <int bits>
struct Packing {
  static constexpr int kChunks = bits == 3 ? 3 : 1;  // of a unit
  static constexpr int kColumns = bits == 3 ? 128 : 128 / bits;
  static constexpr int kRuns = kColumns / 16;  // of 16 columns
  static constexpr int kBytes = kChunks * 16;
  static constexpr std::uint32_t kMask =
      bits == 8 ? 0xffffffffu : ((1u << bits) - 1u) * 0x01010101u;
  // dot_quad: (u - kDotMiddle) * 2^kDotShift.
  static constexpr int kDotShift = bits == 3 ? 5 : 0, kDotMiddle = bits == 3 ? 4 : 0;
};

// Four codes below 8 bits as signed bytes (u - 2^(b - 1)) * 2^(8 - b): each in the top of its byte.
// Codes without zero points need nothing else.
inline constexpr std::uint32_t kTopBits = 0x80808080u;
template <int bits>
inline constexpr int kSignedFactor = 1 << (8 - bits);
// Columns 16 run + 4 j ... + 3 of a unit; words[p]: word j of its chunk p. flip: kTopBits, at 8
// bits that turns unsigned codes u into u - 128, or 0; in a register that the compiler does not
// know, it is one operation with the mask, where an instruction holds one constant (signed_flip). 3
// bits are stored as signed numbers.
template <int bits>
__device__ __forceinline__ std::uint32_t signed_quad(
    const std::uint32_t (&words)[Packing<bits>::kChunks], int run, std::uint32_t flip) {
  if constexpr (bits == 8) {
    return words[0] ^ flip;
  } else if constexpr (bits == 3) {
    return three_bit_quad(run, [&](int chunk) { return words[chunk]; });
  } else {
    const int left = 8 - bits - bits * run;
    const std::uint32_t quad = left >= 0 ? words[0] << left : words[0] >> -left;
    return (quad & Packing<bits>::kMask << (8 - bits)) ^ flip;
  }
}

// Of a K tile of 128 columns, which is `bits` chunks: run 0 ... 7.
template <int bits>
__device__ __forceinline__ std::uint32_t k_tile_quad(const std::uint32_t (&words)[bits], int run,
                                                     std::uint32_t flip) {
  if constexpr (bits == 3) {
    return signed_quad<3>(words, run, flip);
  } else {
    constexpr int kRuns = Packing<bits>::kRuns;
    return signed_quad<bits>({words[run / kRuns]}, run % kRuns, flip);
  }
}

// The same four as dp4a takes them: codes u as they are, or what signed_quad gives at 3 bits.
template <int bits>
__device__ __forceinline__ std::uint32_t dot_quad(
    const std::uint32_t (&words)[Packing<bits>::kChunks], int run, std::uint32_t flip) {
  if constexpr (bits == 8 || bits == 3) return signed_quad<bits>(words, run, flip);
  return words[0] >> bits * run & Packing<bits>::kMask;
}

// Four codes below 8 bits of a K tile less a zero point z, as signed bytes (u - z) << kZeroPowers:
// who multiplies them has nothing to take off the sums. less: zero_less(z). No byte carries into
// the next: u + 128 - z, both so many powers of two as large, lies within 0 ... 255.
template <int bits>
inline constexpr int kZeroPowers = bits == 3 ? 4 : 0;
template <int bits>
__device__ __forceinline__ std::uint32_t zero_less(int zero) {
  return kTopBits - static_cast<std::uint32_t>(zero << kZeroPowers<bits>) * 0x01010101u;
}
template <int bits>
__device__ __forceinline__ std::uint32_t k_tile_quad_less(const std::uint32_t (&words)[bits],
                                                          int run, std::uint32_t less) {
  std::uint32_t codes = 0;  // as many powers of two as large
  if constexpr (bits == 3) {
    codes = (signed_quad<3>(words, run, 0) >> 1) ^ 0x40404040u;
  } else {
    constexpr int kRuns = Packing<bits>::kRuns;
    codes = dot_quad<bits>({words[run / kRuns]}, run % kRuns, 0);
  }
  return (codes + less) ^ kTopBits;
}

// A unit of a row.
template <int bits>
struct Unit {
  uint4 chunks[Packing<bits>::kChunks];

  __device__ __forceinline__ static std::uint32_t word(const uint4& chunk, int j) {
    return j == 0 ? chunk.x : j == 1 ? chunk.y : j == 2 ? chunk.z : chunk.w;
  }
  __device__ __forceinline__ std::uint32_t quad(int run, int j, std::uint32_t flip) const {
    std::uint32_t words[Packing<bits>::kChunks];
#pragma unroll
    for (int p = 0; p < Packing<bits>::kChunks; ++p) words[p] = word(chunks[p], j);
    return dot_quad<bits>(words, run, flip);
  }
  // 4 and 2 bits: the same codes where they lie in their bytes, times 2^(bits run), unsigned.
  __device__ __forceinline__ std::uint32_t quad_in_place(int run, int j) const {
    static_assert(bits == 4 || bits == 2);
    return word(chunks[0], j) & Packing<bits>::kMask << bits * run;
  }
};

// Of 3 bits a lane reads 48 bytes, so that the first cache has what its neighbours read of a line.
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

// Where unit `index` of a row of `columns` columns lies, a multiple of 128.
template <int bits>
__device__ __forceinline__ std::int64_t unit_at(std::int64_t row, int columns, int index) {
  return row * columns * bits / 8 + std::int64_t{index} * Packing<bits>::kBytes;
}

}  // namespace leq::LEQ_GPU
