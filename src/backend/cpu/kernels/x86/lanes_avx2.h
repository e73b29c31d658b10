// 256-bit registers: of floats, and of integers for tiles of matmuls (blocks.h). For files that are
// built with AVX2 and FMA: each has its own copy, in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

struct Floats256 {
  using Floats = __m256;
  using Mask = __m256i;
  static constexpr int kLanes = 8;
  static constexpr bool kManyRegisters = false;  // 16, not 32
  static constexpr int kParts = 2;               // registers of sixteen lanes

  // A mask of all ones in the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n < kLanes ? n : kLanes)), lane);
  }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static Floats load(const std::uint16_t* halves) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
  }
  static Floats load(const std::uint8_t* codes) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
  }
  // Group scales of consecutive outputs from index `at` on, without scale_mul.
  static inline __attribute__((always_inline)) Floats load_scales(const IntPanel& panel,
                                                                  std::int64_t at) {
    if (!panel.byte_scales) return load(panel.group_scales + at);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(panel.group_scales);
    return _mm256_cvtph_ps(_mm_slli_epi16(
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + at))), 7));
  }
  static Floats load(const F16* x) { return load(&x->bits); }
  static Floats load(const Bf16* x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Floats load(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm256_maskstore_ps(to, mask, x); }
  // x in the lanes of the mask, +0 in the others.
  static Floats keep(Floats x, Mask mask) { return _mm256_and_ps(x, _mm256_castsi256_ps(mask)); }
  static Floats repeat(float x) { return _mm256_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
  // Rounds x to an integer, ties to even; |x| is below 2^22.
  static Floats round(Floats x) { return x + 0x1.8p23f - 0x1.8p23f; }
  // p * 2^n
  static Floats times_power(Floats p, Floats n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return p * _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  }
  // y, or +0 where x is below the limit.
  static Floats zero_below(Floats x, float limit, Floats y) {
    return _mm256_and_ps(y, _mm256_cmp_ps(x, repeat(limit), _CMP_NLT_UQ));
  }
  static Floats infinite_above(Floats x, float limit, Floats y) {
    const __m256 above = _mm256_cmp_ps(x, repeat(limit), _CMP_GT_OQ);
    return _mm256_blendv_ps(y, repeat(__builtin_inff()), above);
  }
  static Floats silu(Floats c) { return times_sigmoid<Floats256>(c, c); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  // a in the lanes of the mask, b in the others.
  static Floats select(Mask mask, Floats a, Floats b) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
  }
  // The lanes below `last` but not below `first`.
  static Mask lanes_between(std::int64_t first, std::int64_t last) {
    return _mm256_andnot_si256(first_lanes(first), first_lanes(last));
  }
  static float largest(Floats x) {
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, x);
    float max = lanes[0];
    for (const float lane : lanes) max = lane > max ? lane : max;
    return max;
  }
  static float smallest(Floats x) { return -largest(-x); }
  // The nearest f16 numbers, ties to even.
  static __m128i to_halves(Floats x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // f16 numbers: the largest that is at most x, and the smallest that is at least x.
  static std::uint16_t half_below(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEG_INF); }
  static std::uint16_t half_above(float x) { return _cvtss_sh(x, _MM_FROUND_TO_POS_INF); }
  static float to_float(std::uint16_t half) { return _cvtsh_ss(half); }
  // The nearest integers, ties to even, of numbers from 0 to 255, as bytes.
  static std::int64_t to_bytes(Floats x) {
    const __m256i all = _mm256_cvtps_epi32(x);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    return _mm_cvtsi128_si64(_mm_packus_epi16(words, words));
  }
  // Transposes a matrix of 8 x 8 numbers.
  static void transpose(__m256 (&x)[8]) {
    __m256 a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {  // b[i + k] has columns k and 4 + k of rows i to i + 3
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      x[k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x20);
      x[4 + k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x31);
    }
  }
  // Adds the lanes of kParts registers in the fixed order: 8 apart, then 4, 2 and 1.
  static float total(const Floats (&sums)[kParts]) {
    const __m256 eight = _mm256_add_ps(sums[0], sums[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

struct Lanes256 : Floats256 {
  using Ints = __m256i;
  static constexpr int kOutputs = 8;  // lanes of 32 bits
  static constexpr int kBytes = 32;

  using Quad = int __attribute__((may_alias, aligned(1)));  // four bytes of input

  static inline Ints load_ints(const void* from) {
    return _mm256_load_si256(static_cast<const Ints*>(from));
  }
  static inline void store_ints(void* to, Ints x) { _mm256_store_si256(static_cast<Ints*>(to), x); }
  static inline Ints repeat8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static inline Ints repeat16(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
  static inline Ints repeat32(int x) { return _mm256_set1_epi32(x); }
  // Broadcasts four bytes to all lanes by a load, which needs no arithmetic port.
  static inline Ints repeat_quad(const void* from) {
    return _mm256_set1_epi32(*static_cast<const Quad*>(from));
  }

  static inline Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  static inline Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  // The bytes of a table of 16, which each 128 bits of `table` repeat.
  static inline Ints lookup(Ints table, Ints codes) { return _mm256_shuffle_epi8(table, codes); }
  template <int kPlaces>  // shift left in 16-bit lanes; negative: right
  static inline Ints shifted(Ints x) {
    if constexpr (kPlaces == 0) return x;
    return kPlaces > 0 ? _mm256_slli_epi16(x, kPlaces > 0 ? kPlaces : 0)
                       : _mm256_srli_epi16(x, kPlaces > 0 ? 0 : -kPlaces);
  }
  static inline Ints high_signed(Ints x) { return _mm256_srai_epi16(x, 8); }
  static inline Ints twice(Ints x) {
    return either(x, _mm256_slli_epi32(x, 16));
  }  // in 16-bit lanes
  static inline Ints sub16(Ints a, Ints b) { return _mm256_sub_epi16(a, b); }
  static inline Ints add32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static inline Ints sub32(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  static inline Ints mul16(Ints a, Ints b) { return _mm256_mullo_epi16(a, b); }
  static inline Ints mul32(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
  static inline Ints times_128(Ints x) { return _mm256_slli_epi32(x, 7); }
  static inline Ints products16(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }
  // Adds the products of two registers of codes and four bytes of input (in every lane) to c0 and
  // c1; this function adds pairs of 16-bit products to 32 bits. In assembly, because g++ 12 moves
  // and spills the sums around the intrinsics.
  static inline __attribute__((always_inline)) void add_words(Ints& c0, Ints& c1, Ints w0, Ints w1,
                                                              const void* quad) {
    Ints input, product;
    asm("vpbroadcastd %[quad], %[input]\n"
        "vpmaddwd %[w0], %[input], %[product]\n"
        "vpaddd %[product], %[c0], %[c0]\n"
        "vpmaddwd %[w1], %[input], %[input]\n"
        "vpaddd %[input], %[c1], %[c1]\n"
        : [c0] "+x"(c0), [c1] "+x"(c1), [input] "=&x"(input), [product] "=&x"(product)
        : [w0] "x"(w0), [w1] "x"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
  }
  // Multiplies u8 codes by s8 inputs and adds pairs of products to 16 bits.
  static inline __attribute__((always_inline)) void add_bytes(Ints& c0, Ints& c1, Ints w0, Ints w1,
                                                              const void* quad) {
    Ints input, product;
    asm("vpbroadcastd %[quad], %[input]\n"
        "vpmaddubsw %[input], %[w0], %[product]\n"
        "vpaddw %[product], %[c0], %[c0]\n"
        "vpmaddubsw %[input], %[w1], %[input]\n"
        "vpaddw %[input], %[c1], %[c1]\n"
        : [c0] "+x"(c0), [c1] "+x"(c1), [input] "=&x"(input), [product] "=&x"(product)
        : [w0] "x"(w0), [w1] "x"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
  }
  // Like add_bytes, but the sums begin with these products.
  static inline __attribute__((always_inline)) void begin_bytes(Ints& c0, Ints& c1, Ints w0,
                                                                Ints w1, const void* quad) {
    asm("vpbroadcastd %[quad], %[c1]\n"
        "vpmaddubsw %[c1], %[w0], %[c0]\n"
        "vpmaddubsw %[c1], %[w1], %[c1]\n"
        : [c0] "=&x"(c0), [c1] "=&x"(c1)
        : [w0] "x"(w0), [w1] "x"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
  }

  static inline Ints from_u8(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints from_i8(const std::uint8_t* from) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints from_i16(const std::int16_t* from) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints load_anywhere(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }

  static inline Ints shifted_down(Ints x, int places) {  // in 32-bit lanes
    return _mm256_srl_epi32(x, _mm_cvtsi32_si128(places));
  }
  // The codes in the low bits of each lane, converted to floats.
  template <int kBits>
  static inline Floats low_codes(Ints x) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32((1 << kBits) - 1)));
  }
  // The codes of half `part` of 16 channels of packed values (kv_pages.h).
  template <int kBits>
  static inline Floats channels(const std::uint8_t* at, int part) {
    if constexpr (kBits == 8) return low_codes<8>(from_u8(at + part * 8));
    const int low = part * 16;
    if constexpr (kBits == 4) {
      std::int64_t both_words;
      __builtin_memcpy(&both_words, at, sizeof both_words);
      const Ints digits =
          _mm256_setr_epi32(low, low, low + 4, low + 4, low + 8, low + 8, low + 12, low + 12);
      return low_codes<4>(_mm256_srlv_epi32(_mm256_set1_epi64x(both_words), digits));
    }
    std::int32_t all;
    __builtin_memcpy(&all, at, sizeof all);
    const Ints digits =
        _mm256_setr_epi32(low, low + 2, low + 4, low + 6, low + 8, low + 10, low + 12, low + 14);
    return low_codes<2>(_mm256_srlv_epi32(_mm256_set1_epi32(all), digits));
  }
  static inline Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
  // f = fma(float(sum), a * b, f), or fma(float(sum), scale, f), for one register; overwrites
  // `sum`. In assembly, because g++ 12 would also keep the f of a tile on the stack.
  using Line = float __attribute__((vector_size(32), may_alias));
  static inline __attribute__((always_inline)) void add_scaled(float* f, Ints& sum, Floats a,
                                                               Floats b) {
    Floats scale;
    asm("vcvtdq2ps %[sum], %[sum]\n"
        "vmulps %[a], %[b], %[scale]\n"
        "vfmadd213ps %[f], %[scale], %[sum]\n"
        "vmovaps %[sum], %[f]\n"
        : [f] "+m"(*reinterpret_cast<Line*>(f)), [sum] "+x"(sum), [scale] "=&x"(scale)
        : [a] "x"(a), [b] "x"(b));
  }
  static inline __attribute__((always_inline)) void add_scaled(float* f, Ints& sum, Floats scale) {
    asm("vcvtdq2ps %[sum], %[sum]\n"
        "vfmadd213ps %[f], %[scale], %[sum]\n"
        "vmovaps %[sum], %[f]\n"
        : [f] "+m"(*reinterpret_cast<Line*>(f)), [sum] "+x"(sum)
        : [scale] "x"(scale));
  }
};

}  // namespace
}  // namespace leq::cpu
