// 256-bit registers for tiles of blocks (the template argument Lanes of matmul_blocks.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace leq::cpu {
namespace {

struct Lanes256 {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kOutputs = 8;  // lanes of 32 bits
  static constexpr int kBytes = 32;

  using Quad = int __attribute__((may_alias, aligned(1)));  // four bytes of input

  static inline Ints load(const void* from) {
    return _mm256_load_si256(static_cast<const Ints*>(from));
  }
  static inline void store(void* to, Ints x) { _mm256_store_si256(static_cast<Ints*>(to), x); }
  static inline Ints repeat8(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static inline Ints repeat16(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
  static inline Ints repeat32(int x) { return _mm256_set1_epi32(x); }
  // Broadcasts four bytes to all lanes by a load, which needs no arithmetic port.
  static inline Ints repeat_quad(const void* from) {
    return _mm256_set1_epi32(*static_cast<const Quad*>(from));
  }

  static inline Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  static inline Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
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
  static inline Ints from_i16(const std::int16_t* from) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Ints from_i32(const std::int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }

  static inline Floats from_f16(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static inline Floats repeat(float x) { return _mm256_set1_ps(x); }
  static inline Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
  static inline void store_floats(float* to, Floats x) { _mm256_storeu_ps(to, x); }
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
  static inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace leq::cpu
