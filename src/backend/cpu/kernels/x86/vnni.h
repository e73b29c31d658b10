// Shared by the matmuls of AVX-512 VNNI and AMX: the dot-product instruction, broadcasts by load
// ports, the last step of a row, the division of a block of tokens into tiles, and weights of fewer
// than 8 bits.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// The panel that this thread will probably multiply next. Each tile of many tokens prefetches a
// part of it into L2, because the first tile of a panel would otherwise wait for memory.
struct NextPanel {
  const std::uint8_t* at = nullptr;  // the first byte not prefetched yet
  const std::uint8_t* end = nullptr;
  const std::uint8_t* here = nullptr;
};

// Prefetch distance for many tokens, into L1 only: a second prefetch costs 2 % and gains nothing.
constexpr int kTallBytes = 2048;

// c += products of u8 x s8 quads. One instruction in assembly, because g++ 12 moves and spills the
// accumulators around the intrinsic: 240 instead of 700 GOPS on one core.
inline __attribute__((always_inline)) void dot(__m512i& c, __m512i u8, __m512i s8) {
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(u8), "v"(s8));
}

// Broadcasts four codes of one token to all lanes by a load, which needs no vector port.
inline __attribute__((always_inline)) __m512i broadcast_quad(const std::uint8_t* codes) {
  int quad;
  __builtin_memcpy(&quad, codes, sizeof quad);
  return _mm512_set1_epi32(quad);
}

inline __attribute__((always_inline)) void fetch_for_many(const std::uint8_t* bytes) {
  _mm_prefetch(reinterpret_cast<const char*>(bytes + kTallBytes), _MM_HINT_T0);
}

// How often a tile of `tokens` x all 64 outputs of 8 bits prefetches a line of codes; `best` is
// best_fetch(). Fetch::once (Zen 5) was measured only for one token. Fetch::never (Zen 4) is slower
// for one token, but 1.5 times as fast for more.
constexpr Fetch wide_tile_fetch(Fetch best, int tokens) {
  const Fetch other = tokens == 1 ? Fetch::never : Fetch::once;
  return best == other ? Fetch::twice : best;
}

// Loads four columns of 16 J outputs. If these are all 64 outputs, the panel is read sequentially.
template <Fetch kFetch, int J>
inline __attribute__((always_inline)) void load_weights(const std::uint8_t* w,
                                                        __m512i (&weights)[J]) {
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
    weights[j] = _mm512_load_si512(w + 64 * j);
    if constexpr (J == 4) {
      fetch_ahead<kFetch>(w + 64 * j);
    } else {
      fetch_for_many(w + 64 * j);
    }
  }
}

inline NextPanel next_panel(const IntPanel& panel) {
  return {panel.next_codes, panel.next_codes + panel.next_bytes, panel.codes};
}

// Takes `bytes` of the next panel to prefetch; at its end returns lines that are in the cache.
inline const std::uint8_t* take_ahead(NextPanel& next, std::int64_t bytes) {
  if (next.end - next.at < bytes) return next.here;
  next.at += bytes;
  return next.at - bytes;
}

// Prefetches the lines to which M tokens x 32 outputs will be stored.
template <int M>
inline __attribute__((always_inline)) void fetch_results(const IntPanel& panel, std::int64_t token,
                                                         int output) {
  const float* y = panel.y + token * panel.y_stride + output;
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    asm volatile("prefetchw %0" : : "m"(y[m * panel.y_stride]));
    asm volatile("prefetchw %0" : : "m"(y[m * panel.y_stride + 16]));
  }
}

// -128 times sums of 8-bit codes, which cancels the offset of the unsigned side.
inline __attribute__((always_inline)) __m512i start_value(__m512i sums) {
  return _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sums, 7));
}

// The zero points of 16 outputs, for unsigned weights.
inline __attribute__((always_inline)) __m512i zero_points(const IntPanel& panel, std::int64_t group,
                                                          int output) {
  if (panel.zeros == nullptr) return _mm512_set1_epi32(panel.zero);
  const std::uint8_t* zeros = panel.zeros + group * panel.zero_stride + output;
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
}

// The scales of 16 outputs. Tiles without a table have no registers for scales of bytes.
template <bool kMayBeBytes = true>
inline __attribute__((always_inline)) __m512 weight_scale(const IntPanel& panel, std::int64_t group,
                                                          int output) {
  return _mm512_mul_ps(Lanes512::load_scales<kMayBeBytes>(panel, group * 64 + output),
                       _mm512_set1_ps(panel.scale_mul));
}

// y = fma(f, weight scale * token scale, bias) for 16 outputs of one token.
inline __attribute__((always_inline)) void finish(const IntPanel& panel, std::int64_t token,
                                                  int output, __m512 f) {
  __m512 scale = _mm512_set1_ps(1.0f);
  if (panel.groups_a_token_scale == 0) {
    scale = _mm512_set1_ps(panel.token_scales[token * panel.token_scale_stride]);
  }
  if (panel.row_scales != nullptr) {
    scale = _mm512_mul_ps(scale, _mm512_loadu_ps(panel.row_scales + output));
  }
  f = panel.bias != nullptr ? _mm512_fmadd_ps(f, scale, _mm512_loadu_ps(panel.bias + output))
                            : _mm512_mul_ps(f, scale);
  _mm512_storeu_ps(panel.y + token * panel.y_stride + output, f);
}

// Few tokens are limited by reading the weights, which is fastest in memory order, so tiles have at
// most 6 tokens (24 accumulators) x all 64 outputs. With 16 tokens, two tiles of 8 x 32 outputs
// read 15 GB/s, three tiles of 64 outputs 18. More tokens use tiles of 6 x 32 outputs or, without
// groups, of 12 x 32.
constexpr std::int64_t kFewTokens = 32;
constexpr std::int64_t kWideTokens = 6;

// Weights of fewer than 8 bits for AVX-512: the layout of codes in bytes (the template argument
// Bits of the kernels), and unpacking to bytes. Bits has:
//   kLowBits, kThirdPlane   the planes of the panel
//   kGroupsOf16             whether groups may have 16 columns
//   kShift                  codes of odd quads of columns are 2^kShift times too large
//   code<quad>(low, third)  the codes of one of eight quads for 16 outputs, one per byte

// 2 bits: a byte holds the codes of four quads of columns.
struct Bits2 {
  static constexpr int kLowBits = 2;
  static constexpr bool kThirdPlane = false, kGroupsOf16 = false;
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
  static constexpr bool kThirdPlane = true, kGroupsOf16 = false;
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
  static constexpr bool kThirdPlane = false, kGroupsOf16 = false;
  static constexpr int kShift = 4;

  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t*) {
    const __m512i bytes = _mm512_load_si512(low + kQuad / 2 * 256);
    const __m512i mask = _mm512_set1_epi8(15);
    return kQuad % 2 == 0 ? _mm512_and_si512(bytes, mask) : _mm512_andnot_si512(mask, bytes);
  }
};

// 4 bits whose numbers are in a table, which Planes::third points to.
struct Table4 {
  static constexpr int kLowBits = 4;
  static constexpr bool kThirdPlane = false, kGroupsOf16 = true;
  static constexpr int kShift = 0;

  template <int kQuad>
  static inline __attribute__((always_inline)) __m512i code(const std::uint8_t* low,
                                                            const std::uint8_t* table) {
    __m512i bytes = _mm512_load_si512(low + kQuad / 2 * 256);
    if constexpr (kQuad % 2 == 1) bytes = _mm512_srli_epi16(bytes, 4);
    return _mm512_shuffle_epi8(_mm512_load_si512(table),
                               _mm512_and_si512(bytes, _mm512_set1_epi8(15)));
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
          Bits::kThirdPlane ? panel.high_codes + column * 8 : panel.table};
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
    if constexpr (kQuad % 2 == 1 && Bits::kShift > 0) {
      quad = _mm512_srli_epi16(quad, Bits::kShift);
    }
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
