// Weights of fewer than 8 bits for AVX-512: the layout of codes in bytes (the template argument
// Bits of the kernels), and unpacking to bytes. Bits has:
//   kLowBits, kThirdPlane   the planes of the panel
//   kShift                  codes of odd quads of columns are 2^kShift times too large
//   code<quad>(low, third)  the codes of one of eight quads for 16 outputs, one per byte
#pragma once

#include "backend/cpu/matmul/x86/matmul_avx512.h"

namespace leq::cpu {
namespace {

// 2 bits: a byte holds the codes of four quads of columns.
struct Bits2 {
  static constexpr int kLowBits = 2;
  static constexpr bool kThirdPlane = false;
  static constexpr int kShift = 2;

  // Extracts bits 0 and 1, or bits 2 and 3, of each byte or of its upper half.
  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t*) {
    __m512i bytes = _mm512_load_si512(low + kQuad / 4 * 256);
    if constexpr (kQuad % 4 >= 2) bytes = _mm512_srli_epi16(bytes, 4);
    return _mm512_and_si512(bytes, _mm512_set1_epi8(kQuad % 2 == 0 ? 3 : 12));
  }
};

// 3 bits: a byte of the first plane holds the low two bits of four quads of columns, a byte of the
// second plane the third bits of eight quads.
struct Bits3 {
  static constexpr int kLowBits = 2;
  static constexpr bool kThirdPlane = true;
  static constexpr int kShift = 2;

  // Codes of even quads are returned in bits 0 to 2, codes of odd quads in bits 2 to 4.
  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t* third) {
    constexpr int kPlace = kQuad % 2 == 0 ? 0 : 2;
    constexpr int kLeft = kPlace + 2 - kQuad;  // shift of the third bit from bit kQuad
    __m512i bytes = _mm512_load_si512(low + kQuad / 4 * 256);
    if constexpr (kQuad % 4 >= 2) bytes = _mm512_srli_epi16(bytes, 4);
    __m512i bits = _mm512_load_si512(third);
    if constexpr (kLeft > 0) bits = _mm512_slli_epi16(bits, kLeft);
    if constexpr (kLeft < 0) bits = _mm512_srli_epi16(bits, -kLeft);
    bytes = _mm512_and_si512(bytes, _mm512_set1_epi8(3 << kPlace));
    // bytes | (bits & mask) in one instruction.
    return _mm512_ternarylogic_epi32(bytes, bits, _mm512_set1_epi8(4 << kPlace), 0xf8);
  }
};

// 4 bits: a byte holds the codes of two quads of columns.
struct Bits4 {
  static constexpr int kLowBits = 4;
  static constexpr bool kThirdPlane = false;
  static constexpr int kShift = 4;

  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t*) {
    const __m512i bytes = _mm512_load_si512(low + kQuad / 2 * 256);
    const __m512i mask = _mm512_set1_epi8(15);
    return kQuad % 2 == 0 ? _mm512_and_si512(bytes, mask) : _mm512_andnot_si512(mask, bytes);
  }
};

constexpr std::int64_t kStepColumns = 32;  // eight quads

// The addresses of the first bytes of a step.
struct Planes {
  const std::uint8_t* low;
  const std::uint8_t* third;
};
template <class Bits>
inline __attribute__((always_inline)) Planes planes_at(const IntPanel& panel, std::int64_t column) {
  return {panel.codes + column * 8 * Bits::kLowBits,
          Bits::kThirdPlane ? panel.high_codes + column * 8 : nullptr};
}

// Prefetches an eighth of the lines of a later step of the panel. Prefetches are spread over the
// quads of a step, because a burst takes all fill buffers of L1 and stalls.
template <class Bits, int kQuad, Fetch kFetch = Fetch::twice>
inline __attribute__((always_inline)) void prefetch_share(const Planes& planes) {
  constexpr int kLines = 4 * Bits::kLowBits;
#pragma GCC unroll 2
  for (int line = kLines * kQuad / 8; line < kLines * (kQuad + 1) / 8; ++line) {
    fetch_ahead<kFetch>(planes.low + 64 * line);
  }
  if constexpr (Bits::kThirdPlane && kQuad % 2 == 0) {
    fetch_ahead<kFetch>(planes.third + 32 * kQuad);
  }
}

// Conversion of unpacked codes, 16 outputs x 4 columns per register: none, or code - zero point.
struct NoZeros {
  __m512i operator()(__m512i codes, int) const { return codes; }
};
struct ByteZeros {
  __m512i zeros[4];
  inline __attribute__((always_inline)) __m512i operator()(__m512i codes, int j) const {
    return _mm512_sub_epi8(codes, zeros[j]);
  }
};

template <class Bits, int kQuad, class Zeros>
inline __attribute__((always_inline)) void unpack_quad(const Planes& planes, const Zeros& zeros,
                                                       std::uint8_t* codes) {
  prefetch_share<Bits, kQuad>(planes);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    __m512i quad = Bits::template code<kQuad>(planes.low + 64 * j, planes.third + 64 * j);
    if constexpr (kQuad % 2 == 1) quad = _mm512_srli_epi16(quad, Bits::kShift);
    _mm512_store_si512(codes + kQuad * 256 + 64 * j, zeros(quad, j));
  }
}

// Unpacks columns [first, first + columns) of a panel to [columns/4][64][4] bytes.
template <class Bits, class Zeros>
void unpack(const IntPanel& panel, std::int64_t first, std::int64_t columns, const Zeros& zeros,
            std::uint8_t* codes) {
  for (std::int64_t k = first; k < first + columns; k += kStepColumns, codes += 8 * 256) {
    const Planes planes = planes_at<Bits>(panel, k);
    unpack_quad<Bits, 0>(planes, zeros, codes);
    unpack_quad<Bits, 1>(planes, zeros, codes);
    unpack_quad<Bits, 2>(planes, zeros, codes);
    unpack_quad<Bits, 3>(planes, zeros, codes);
    unpack_quad<Bits, 4>(planes, zeros, codes);
    unpack_quad<Bits, 5>(planes, zeros, codes);
    unpack_quad<Bits, 6>(planes, zeros, codes);
    unpack_quad<Bits, 7>(planes, zeros, codes);
  }
}

}  // namespace
}  // namespace leq::cpu
