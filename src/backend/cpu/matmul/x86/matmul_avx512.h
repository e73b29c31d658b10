// Shared by the AVX-512 VNNI matmul files: the dot-product instruction, broadcasts by load ports,
// the last step of a row, and the division of a block of tokens into tiles.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/x86/fetch_ahead.h"

namespace leq::cpu {

// The panel that this thread will probably multiply next. Each tile of many tokens prefetches a
// part of it into L2, because the first tile of a panel would otherwise wait for memory.
struct NextPanel {
  const std::uint8_t* at = nullptr;  // the first byte not prefetched yet
  const std::uint8_t* end = nullptr;
  const std::uint8_t* here = nullptr;
};

namespace {

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
// read 15 GB/s, three tiles of 64 outputs 18. More tokens use tiles of 12 x 32.
constexpr std::int64_t kFewTokens = 32;
constexpr std::int64_t kWideTokens = 6;
constexpr std::int64_t kTallTokens = 12;

}  // namespace
}  // namespace leq::cpu
