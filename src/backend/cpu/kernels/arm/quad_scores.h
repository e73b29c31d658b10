// Scores of int8 keys, by an instruction that multiplies quads of codes; each key has its own sum.
//   Quads: add(sums, 16 codes, query quad), and total(sum, sum of query codes)
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/portable.inc"

namespace leq::cpu {
namespace {

template <class Quads, int R>
void quad_rows(const ScoreTile& tile, int first) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  for (int block = tile.first_block; block < tile.last_block; ++block) {
    const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
    int32x4_t sums[R][4];
    for (int r = 0; r < R; ++r) {
      for (int32x4_t& sum : sums[r]) sum = vdupq_n_s32(0);
    }
    for (std::int64_t quad = 0; quad < quads; ++quad) {
      uint8x16_t codes[4];
      for (int i = 0; i < 4; ++i) codes[i] = vld1q_u8(keys + quad * 64 + i * 16);
      for (int r = 0; r < R; ++r) {
        std::int32_t four;
        __builtin_memcpy(&four, tile.codes[first + r] + quad * 4, sizeof four);
        const int8x16_t query = vreinterpretq_s8_s32(vdupq_n_s32(four));
        for (int i = 0; i < 4; ++i) sums[r][i] = Quads::add(sums[r][i], codes[i], query);
      }
    }
    for (int r = 0; r < R; ++r) {
      const auto sum = static_cast<std::int32_t>(tile.code_sum[first + r]);
      std::int32_t totals[kKeyBlock];
      for (int i = 0; i < 4; ++i) vst1q_s32(totals + i * 4, Quads::total(sums[r][i], sum));
      plain::finish_int8(tile, first + r, block, totals);
    }
  }
}

template <class Quads>
void quad_scores(const ScoreTile& tile) noexcept {
  int first = 0;
  for (; first + 4 <= tile.queries; first += 4) quad_rows<Quads, 4>(tile, first);
  for (; first < tile.queries; ++first) quad_rows<Quads, 1>(tile, first);
}

}  // namespace
}  // namespace leq::cpu
