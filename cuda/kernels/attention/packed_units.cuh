// Packed codes as operands of mma m16n8k16. A code u of b bits is put into the mantissa of an f16,
// whose value is then base + u, base = 2^b (8 bits: 1024), exactly: 1 + u / 16 with another
// exponent. What base adds to a product is taken off again by a product with minus the base
// (attention_packed.cuh), so nothing is subtracted from codes.
#pragma once

#include "cuda/words/ptx_attention.h"

namespace leq::LEQ_GPU {

template <int bits>
struct CodeHalf;
template <>
struct CodeHalf<8> {
  static constexpr std::uint32_t kBase = 0x64006400u;  // 1024, twice
};
template <>
struct CodeHalf<4> {
  static constexpr std::uint32_t kBase = 0x4c004c00u;  // 16
  static constexpr std::uint32_t kMask = 0x03c003c0u;
  static constexpr int kBit = 6;
};
template <>
struct CodeHalf<2> {
  static constexpr std::uint32_t kBase = 0x44004400u;  // 4
  static constexpr std::uint32_t kMask = 0x03000300u;
  static constexpr int kBit = 8;
};
template <int bits>
inline constexpr std::uint32_t kMinusBase = CodeHalf<bits>::kBase | 0x80008000u;
template <int bits>
inline constexpr float kBaseOf = bits == 8   ? 1024.0f
                                 : bits == 4 ? 16.0f
                                             : 4.0f;

// Of 16 positions x 16 channels what a lane holds: b[n][k] is the register for columns 8 n ... of
// the operand and its rows 8 k ....
struct UnitOperand {
  std::uint32_t b[2][2];
};

// Digit `digit` of both halves of a word.
template <int bits>
__device__ __forceinline__ std::uint32_t place_digit(std::uint32_t word, int digit) {
  using Half = CodeHalf<bits>;
  const int shift = Half::kBit - bits * digit;
  return ((shift >= 0 ? word << shift : word >> -shift) & Half::kMask) | Half::kBase;
}

// `words`: of the head in its page; unit (s16, c16) of `units` in a row of channels.
template <int bits, KvPart part>
__device__ __forceinline__ UnitOperand unit_of_codes(const std::uint32_t* words, int s16, int c16,
                                                     int units, int lane) {
  UnitOperand unit;
  if constexpr (bits == 8) {
    const uint2 two = reinterpret_cast<const uint2*>(words)[(s16 * units + c16) * 32 + lane];
    const std::uint32_t each[2] = {two.x, two.y};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      unit.b[n][0] = ptx::select_bytes(each[n], CodeHalf<8>::kBase, 0x5150u);
      unit.b[n][1] = ptx::select_bytes(each[n], CodeHalf<8>::kBase, 0x5352u);
    }
  } else {
    constexpr int kRows = bits == 4 ? 1 : 2;  // of 16 positions in a word
    std::uint32_t word = words[(s16 / kRows * units + c16) * 32 + lane];
    if (kRows == 2) word >>= 8 * (s16 % 2);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unit.b[n][k] = place_digit<bits>(word, part == KvPart::keys ? 2 * n + k : 2 * k + n);
      }
    }
  }
  return unit;
}

// An operand of 16 rows times pairs of scales along k: of places 2 t and 2 t + 1, and 8 further.
__device__ __forceinline__ void fold_scales(const std::uint32_t (&a)[4], std::uint32_t near,
                                            std::uint32_t far, std::uint32_t (&folded)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) folded[i] = ptx::f16x2_fma(a[i], i < 2 ? near : far, 0u);
}

}  // namespace leq::LEQ_GPU
