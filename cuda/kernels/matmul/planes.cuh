// Packed weight codes in registers: 16 bytes of a plane hold 128/b neighbouring columns of one row,
// and one shift and mask of a word gives four of them, as dp4a and mma want them (layout.h).
#pragma once

#include "cuda/kernels/launch.h"
#include "cuda/words/ptx.h"

namespace leq::LEQ_GPU {

// 3 bits are a plane of the low two and a plane of the third.
template <int bits>
struct Planes {
  static constexpr int kLowBits = bits == 3 ? 2 : bits;
  static constexpr int kColumns = 128 / kLowBits;  // of 16 bytes of the low plane
  static constexpr int kRuns = 8 / kLowBits;       // of 16 columns in them
  static constexpr std::uint32_t kMask =
      kLowBits == 8 ? 0xffffffffu : ((1u << kLowBits) - 1u) * 0x01010101u;
};

// 8 bits: `flip` turns unsigned codes u into signed u - 128 (0x80808080), or nothing (0).
// Columns 16 run + 4 word ... + 3 of 16 bytes, as four bytes. `high` is the word of the third bits,
// shifted so that run 0 comes first.
template <int bits>
__device__ __forceinline__ std::uint32_t code_quad(std::uint32_t low, std::uint32_t high, int run,
                                                   std::uint32_t flip) {
  if constexpr (bits == 8) return low ^ flip;
  const std::uint32_t quad = low >> (Planes<bits>::kLowBits * run) & Planes<bits>::kMask;
  if constexpr (bits == 3) return quad | (high >> run & 0x01010101u) << 2;
  return quad;
}

// The same four codes u below 8 bits as signed bytes (u - 2^(b - 1)) * 2^(8 - b): each in the top
// of its byte, for as many instructions. Codes without zero points need nothing else.
inline constexpr std::uint32_t kTopBits = 0x80808080u;
template <int bits>
inline constexpr int kSignedFactor = 1 << (8 - bits);
// flip: kTopBits, at 8 bits that of code_quad; in a register that the compiler does not know, it is
// one operation with the mask, where an instruction holds one constant (signed_flip).
template <int bits>
__device__ __forceinline__ std::uint32_t signed_quad(std::uint32_t low, std::uint32_t high, int run,
                                                     std::uint32_t flip) {
  if constexpr (bits == 8) {
    return low ^ flip;
  } else {
    constexpr int kTop = bits == 3 ? 5 : 8 - bits;  // where the low plane's bits go
    constexpr std::uint32_t kMask = Planes<bits>::kMask << kTop;
    const int left = kTop - Planes<bits>::kLowBits * run;
    std::uint32_t quad = (left >= 0 ? low << left : low >> -left) & kMask;
    if constexpr (bits == 3) quad |= high << (7 - run) & kTopBits;
    return quad ^ flip;
  }
}

// 16 bytes of a row's low plane, and the third bits of the same columns.
template <int bits>
struct Piece {
  std::uint32_t low[4];
  std::uint32_t high[bits == 3 ? 4 : 1];

  __device__ __forceinline__ std::uint32_t quad(int run, int word, std::uint32_t flip) const {
    return code_quad<bits>(low[word], high[bits == 3 ? word : 0], run, flip);
  }
  // 4 and 2 bits: the same codes where they lie in their bytes, times 2^(bits run), unsigned.
  __device__ __forceinline__ std::uint32_t quad_in_place(int run, int word) const {
    static_assert(bits == 4 || bits == 2);
    return low[word] & Planes<bits>::kMask << bits * run;
  }
};

// Where piece `index` of a row lies in the low plane.
template <int bits>
__device__ __forceinline__ std::int64_t piece_at(std::int64_t row, int columns, int index) {
  return row * columns * Planes<bits>::kLowBits / 8 + std::int64_t{index} * 16;
}

// Piece `index` of a row or a group, whose first piece in the high plane, 3 bits, lies at `high`.
template <int bits>
__device__ __forceinline__ Piece<bits> piece_of(const std::uint8_t* low, const std::uint8_t* high,
                                                int index) {
  const uint4 words = ptx::load_once(low);
  Piece<bits> piece = {{words.x, words.y, words.z, words.w}, {}};
  if constexpr (bits == 3) {
    // 16 bytes of the high plane hold the third bits of two pieces.
    const uint4 thirds = *reinterpret_cast<const uint4*>(high + std::int64_t{index / 2} * 16);
    const int shift = index % 2 * 4;
    piece.high[0] = thirds.x >> shift;
    piece.high[1] = thirds.y >> shift;
    piece.high[2] = thirds.z >> shift;
    piece.high[3] = thirds.w >> shift;
  }
  return piece;
}

// Piece `index` of a row of `columns` columns, a multiple of 128.
template <int bits>
__device__ __forceinline__ Piece<bits> load_piece(const CodeWeight& weight, std::int64_t row,
                                                  int columns, int index) {
  return piece_of<bits>(weight.codes + piece_at<bits>(row, columns, index),
                        bits == 3 ? weight.high + row * columns / 8 : nullptr, index);
}

}  // namespace leq::LEQ_GPU
