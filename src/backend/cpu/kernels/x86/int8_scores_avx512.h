// Scores of int8 keys with 512-bit registers: a register holds a quad of dimensions of 16 keys. The
// template argument Products multiplies the quads:
//   most_blocks(queries)               blocks of 16 keys whose sums fit into registers; 1 for one
//                                      query, because memory is read faster sequentially
//   add(keys, stride, quads, sums)     sums[r][b] += the four products of each lane, from the bytes
//                                      at keys + b * stride and the four codes of query r
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// Blocks [block, block + B), R queries: score = s_q * fma(s, float(sum u q), m * float(sum q))
template <class Products, int R, int B>
void int8_blocks(const ScoreTile& tile, int block, const Prefetcher& ahead) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
  const std::int8_t* codes[R];
  constexpr bool kTwoChains = R * B < 4;  // with few chains a second sum hides latency
  __m512i sums[R][B], odd[R][B];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    codes[r] = tile.codes[r];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) sums[r][b] = odd[r][b] = _mm512_setzero_si512();
  }
  const auto add = [&](std::int64_t quad, __m512i(&to)[R][B]) {
    ahead.step(quad);
    std::int32_t four[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) __builtin_memcpy(&four[r], codes[r] + quad * 4, sizeof four[r]);
    Products::template add<R, B>(keys + quad * 64, quads * 64, four, to);
  };
  std::int64_t quad = 0;
  if constexpr (kTwoChains) {
    for (; quad + 2 <= quads; quad += 2) {
      add(quad, sums);
      add(quad + 1, odd);
    }
  }
  for (; quad < quads; ++quad) add(quad, sums);
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    const __m512 scale = Lanes512::load(tile.scales + (block + b) * kKeyBlock);
    const __m512 minimum = Lanes512::load(tile.minima + (block + b) * kKeyBlock);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 low = _mm512_mul_ps(minimum, _mm512_set1_ps(tile.code_sum[r]));
      const __m512i sum = kTwoChains ? _mm512_add_epi32(sums[r][b], odd[r][b]) : sums[r][b];
      const __m512 value = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum), low);
      _mm512_storeu_ps(tile.scores[r] + (block + b) * kKeyBlock,
                       _mm512_mul_ps(_mm512_set1_ps(tile.code_scale[r]), value));
    }
  }
}

template <class Products, int R>
void int8_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = Products::most_blocks(R);
  int block = tile.first_block;
  const std::int64_t quads = (tile.dims + 3) / 4;
  Prefetcher ahead(tile.ahead, turns(tile, kBlocks) * quads);
  for (; block + kBlocks <= tile.last_block; block += kBlocks) {
    int8_blocks<Products, R, kBlocks>(tile, block, ahead);
    ahead = ahead.after(quads);
  }
  for (; block < tile.last_block; ++block) int8_blocks<Products, R, 1>(tile, block, ahead);
}

template <class Products>
void int8_scores(const ScoreTile& tile) noexcept {
  using Rows = void (*)(const ScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {int8_rows<Products, 1>, int8_rows<Products, 2>,
                                      int8_rows<Products, 3>, int8_rows<Products, 4>,
                                      int8_rows<Products, 5>, int8_rows<Products, 6>};
  kRows[tile.queries - 1](tile);
}

}  // namespace
}  // namespace leq::cpu
