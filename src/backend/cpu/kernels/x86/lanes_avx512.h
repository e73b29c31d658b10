// 512-bit registers: of floats, and of integers for tiles of matmuls (blocks.h). For files that are
// built with AVX-512: each has its own copy, in an unnamed namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

struct Floats512 {
  using Floats = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr bool kManyRegisters = true;  // 32
  static constexpr int kParts = 1;              // registers of sixteen lanes

  // A mask of the lanes below n.
  static Mask first_lanes(std::int64_t n) {
    return static_cast<Mask>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
  }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Floats load(const std::uint16_t* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }
  static Floats load(const std::uint8_t* codes) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
  }
  // Group scales of consecutive outputs from index `at` on, without scale_mul.
  template <bool kMayBeBytes = true>
  static inline __attribute__((always_inline)) Floats load_scales(const IntPanel& panel,
                                                                  std::int64_t at) {
    if (!kMayBeBytes || !panel.byte_scales) return load(panel.group_scales + at);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(panel.group_scales);
    return _mm512_cvtph_ps(_mm256_slli_epi16(
        _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + at))), 7));
  }
  static Floats load(const F16* x) { return load(&x->bits); }
  static Floats load(const Bf16* x) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Floats load(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static void store(float* to, Floats x, Mask mask) { _mm512_mask_storeu_ps(to, mask, x); }
  // x in the lanes of the mask, +0 in the others.
  static Floats keep(Floats x, Mask mask) { return _mm512_maskz_mov_ps(mask, x); }
  static Floats repeat(float x) { return _mm512_set1_ps(x); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
  // Rounds x to an integer, ties to even; |x| is below 2^22.
  static Floats round(Floats x) { return x + 0x1.8p23f - 0x1.8p23f; }
  // p * 2^n; exact, because the result is never subnormal.
  static Floats times_power(Floats p, Floats n) { return _mm512_scalef_ps(p, n); }
  // y, or +0 where x is below the limit.
  static Floats zero_below(Floats x, float limit, Floats y) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, repeat(limit), _CMP_NLT_UQ), y);
  }
  static Floats infinite_above(Floats x, float limit, Floats y) {
    const __mmask16 above = _mm512_cmp_ps_mask(x, repeat(limit), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(y, above, repeat(__builtin_inff()));
  }
  static Floats silu(Floats c) { return times_sigmoid<Floats512>(c, c); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  // a in the lanes of the mask, b in the others.
  static Floats select(Mask mask, Floats a, Floats b) { return _mm512_mask_mov_ps(b, mask, a); }
  // The lanes below `last` but not below `first`.
  static Mask lanes_between(std::int64_t first, std::int64_t last) {
    return static_cast<Mask>(first_lanes(last) & ~first_lanes(first > 0 ? first : 0));
  }
  static float largest(Floats x) { return _mm512_reduce_max_ps(x); }
  static float smallest(Floats x) { return _mm512_reduce_min_ps(x); }
  // The nearest f16 numbers, ties to even.
  static __m256i to_halves(Floats x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // f16 numbers: the largest that is at most x, and the smallest that is at least x.
  static std::uint16_t half_below(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEG_INF); }
  static std::uint16_t half_above(float x) { return _cvtss_sh(x, _MM_FROUND_TO_POS_INF); }
  static float to_float(std::uint16_t half) { return _cvtsh_ss(half); }
  // The nearest integers, ties to even, of numbers from 0 to 255, as bytes.
  static __m128i to_bytes(Floats x) { return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x)); }
  // Transposes a matrix of 16 x 16 numbers.
  static void transpose(__m512 (&x)[16]) {
    __m512 a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
      a[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    const auto low = [](__m512 p, __m512 q) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(p), _mm512_castps_pd(q)));
    };
    const auto high = [](__m512 p, __m512 q) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(p), _mm512_castps_pd(q)));
    };
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // b[i + k] has columns k, 4 + k, ... of rows i to i + 3
      b[i] = low(a[i], a[i + 2]);
      b[i + 1] = high(a[i], a[i + 2]);
      b[i + 2] = low(a[i + 1], a[i + 3]);
      b[i + 3] = high(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m512 even0 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0x88);
      const __m512 even1 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0x88);
      const __m512 odd0 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0xdd);
      const __m512 odd1 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0xdd);
      x[k] = _mm512_shuffle_f32x4(even0, even1, 0x88);
      x[8 + k] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
      x[4 + k] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
      x[12 + k] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
  }
  // Adds the lanes of kParts registers in the fixed order: 8 apart, then 4, 2 and 1.
  static float total(const Floats (&sums)[kParts]) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(sums[0]), _mm512_extractf32x8_ps(sums[0], 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
};

struct Lanes512 : Floats512 {
  using Ints = __m512i;
  static constexpr int kOutputs = 16;  // lanes of 32 bits
  static constexpr int kBytes = 64;

  using Quad = int __attribute__((may_alias, aligned(1)));  // four bytes of input

  static inline Ints load_ints(const void* from) {
    return _mm512_load_si512(static_cast<const Ints*>(from));
  }
  static inline void store_ints(void* to, Ints x) { _mm512_store_si512(static_cast<Ints*>(to), x); }
  static inline Ints repeat8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static inline Ints repeat16(int x) { return _mm512_set1_epi16(static_cast<short>(x)); }
  static inline Ints repeat32(int x) { return _mm512_set1_epi32(x); }
  // Broadcasts four bytes to all lanes by a load, which needs no arithmetic port.
  static inline Ints repeat_quad(const void* from) {
    return _mm512_set1_epi32(*static_cast<const Quad*>(from));
  }

  static inline Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  static inline Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  // The bytes of a table of 16, which each 128 bits of `table` repeat.
  static inline Ints lookup(Ints table, Ints codes) { return _mm512_shuffle_epi8(table, codes); }
  template <int kPlaces>  // shift left in 16-bit lanes; negative: right
  static inline Ints shifted(Ints x) {
    if constexpr (kPlaces == 0) return x;
    return kPlaces > 0 ? _mm512_slli_epi16(x, kPlaces > 0 ? kPlaces : 0)
                       : _mm512_srli_epi16(x, kPlaces > 0 ? 0 : -kPlaces);
  }
  static inline Ints high_signed(Ints x) { return _mm512_srai_epi16(x, 8); }
  static inline Ints twice(Ints x) {
    return either(x, _mm512_slli_epi32(x, 16));
  }  // in 16-bit lanes
  static inline Ints sub16(Ints a, Ints b) { return _mm512_sub_epi16(a, b); }
  static inline Ints add32(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static inline Ints sub32(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  static inline Ints mul16(Ints a, Ints b) { return _mm512_mullo_epi16(a, b); }
  static inline Ints mul32(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
  static inline Ints times_128(Ints x) { return _mm512_slli_epi32(x, 7); }
  static inline Ints products16(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }
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
        : [c0] "+v"(c0), [c1] "+v"(c1), [input] "=&v"(input), [product] "=&v"(product)
        : [w0] "v"(w0), [w1] "v"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
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
        : [c0] "+v"(c0), [c1] "+v"(c1), [input] "=&v"(input), [product] "=&v"(product)
        : [w0] "v"(w0), [w1] "v"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
  }
  // Like add_bytes, but the sums begin with these products.
  static inline __attribute__((always_inline)) void begin_bytes(Ints& c0, Ints& c1, Ints w0,
                                                                Ints w1, const void* quad) {
    asm("vpbroadcastd %[quad], %[c1]\n"
        "vpmaddubsw %[c1], %[w0], %[c0]\n"
        "vpmaddubsw %[c1], %[w1], %[c1]\n"
        : [c0] "=&v"(c0), [c1] "=&v"(c1)
        : [w0] "v"(w0), [w1] "v"(w1), [quad] "m"(*static_cast<const Quad*>(quad)));
  }

  static inline Ints from_u8(const std::uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints from_i8(const std::uint8_t* from) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints from_i16(const std::int16_t* from) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static inline Ints load_anywhere(const void* from) { return _mm512_loadu_si512(from); }

  static inline Ints shifted_down(Ints x, int places) {  // in 32-bit lanes
    return _mm512_srl_epi32(x, _mm_cvtsi32_si128(places));
  }
  // The codes in the low bits of each lane, converted to floats; a look-up among sixteen numbers
  // uses four bits.
  template <int kBits>
  static inline Floats low_codes(Ints x) {
    if constexpr (kBits == 8) return _mm512_cvtepi32_ps(x);
    const Floats numbers =
        kBits == 4 ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                   : _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
    return _mm512_permutexvar_ps(x, numbers);
  }
  // The codes of 16 channels of packed values (kv_pages.h).
  template <int kBits>
  static inline Floats channels(const std::uint8_t* at, int) {
    if constexpr (kBits == 8) return low_codes<8>(from_u8(at));
    if constexpr (kBits == 4) {
      std::int64_t both_words;
      __builtin_memcpy(&both_words, at, sizeof both_words);
      const Ints digits =
          _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
      return low_codes<4>(_mm512_srlv_epi32(_mm512_set1_epi64(both_words), digits));
    }
    std::int32_t all;
    __builtin_memcpy(&all, at, sizeof all);
    const Ints digits =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return low_codes<2>(_mm512_srlv_epi32(_mm512_set1_epi32(all), digits));
  }
  static inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
  // f = fma(float(sum), a * b, f), or fma(float(sum), scale, f), for one register.
  static inline void add_scaled(float* f, Ints sum, Floats a, Floats b) {
    add_scaled(f, sum, mul(a, b));
  }
  static inline void add_scaled(float* f, Ints sum, Floats scale) {
    store(f, fma(to_floats(sum), scale, load(f)));
  }
};

}  // namespace
}  // namespace leq::cpu
