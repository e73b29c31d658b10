// Group-scaled weights of fewer than 8 bits times int8 activations. A few tokens take the codes
// straight from the panel; more tokens share a piece of the panel unpacked to bytes. How codes lie
// in bytes is the argument Bits of a kernel file:
//   kLowBits, kThirdPlane   the panel's planes
//   kShift                  codes of odd quads of columns are 2^kShift times too large
//   code<quad>(low, third)  the codes of one of eight quads for 16 outputs, one to a byte
#pragma once

#include "backend/cpu/x86/matmul_groups_avx512.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kStepColumns = 32;  // eight quads

// Bytes where a step begins.
struct Planes {
  const std::uint8_t* low;
  const std::uint8_t* third;
};
template <class Bits>
inline __attribute__((always_inline)) Planes planes_at(const IntPanel& panel, std::int64_t column) {
  return {panel.codes + column * 8 * Bits::kLowBits,
          Bits::kThirdPlane ? panel.high_codes + column * 8 : nullptr};
}

// An eighth of the lines of a step further on in the panel: spread over a step's quads, because a
// burst fills all fill buffers of the first cache and stands still.
template <class Bits, int kQuad>
inline __attribute__((always_inline)) void prefetch_share(const Planes& planes) {
  constexpr int kLines = 4 * Bits::kLowBits;
#pragma GCC unroll 2
  for (int line = kLines * kQuad / 8; line < kLines * (kQuad + 1) / 8; ++line) {
    prefetch(planes.low + 64 * line + kPrefetchBytes);
  }
  if constexpr (Bits::kThirdPlane && kQuad % 2 == 0) {
    prefetch(planes.third + 32 * kQuad + kPrefetchBytes);
  }
}

template <class Bits, int kQuad, int M>
inline __attribute__((always_inline)) void add_quad(const Planes& planes, const std::uint8_t* x,
                                                    std::int64_t stride, __m512i (&even)[M][4],
                                                    __m512i (&odd)[M][4]) {
  prefetch_share<Bits, kQuad>(planes);
  __m512i input[M];
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) input[m] = broadcast_quad(x + m * stride + 4 * kQuad);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i codes = Bits::template code<kQuad>(planes.low + 64 * j, planes.third + 64 * j);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) dot((kQuad % 2 == 0 ? even : odd)[m][j], codes, input[m]);
  }
}

// M tokens x 64 outputs. Codes of odd quads stay where they lie in their bytes, so their products
// are 2^kShift times too large, exactly, until the end of the group.
template <class Bits, int M, Scales kScales>
void bits_tile(const IntPanel& panel, const PanelPiece& piece) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* x = panel.inputs + piece.token * stride;
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; ++group) {
    const std::int64_t stop = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m512i even[M][4];
    __m512i odd[M][4];
    start<M, 4, true>(panel, piece, group, even);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) odd[m][j] = _mm512_setzero_si512();
    }
    for (; k < stop; k += kStepColumns, x += kStepColumns) {
      const Planes planes = planes_at<Bits>(panel, k);
      add_quad<Bits, 0>(planes, x, stride, even, odd);
      add_quad<Bits, 1>(planes, x, stride, even, odd);
      add_quad<Bits, 2>(planes, x, stride, even, odd);
      add_quad<Bits, 3>(planes, x, stride, even, odd);
      add_quad<Bits, 4>(planes, x, stride, even, odd);
      add_quad<Bits, 5>(planes, x, stride, even, odd);
      add_quad<Bits, 6>(planes, x, stride, even, odd);
      add_quad<Bits, 7>(planes, x, stride, even, odd);
    }
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        even[m][j] = _mm512_add_epi32(even[m][j], _mm512_srai_epi32(odd[m][j], Bits::kShift));
      }
    }
    fold<M, 4, kScales>(panel, piece, group, even);
  }
}

template <class Bits, int kQuad>
inline __attribute__((always_inline)) void unpack_quad(const Planes& planes, std::uint8_t* codes) {
  prefetch_share<Bits, kQuad>(planes);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    __m512i quad = Bits::template code<kQuad>(planes.low + 64 * j, planes.third + 64 * j);
    if constexpr (kQuad % 2 == 1) quad = _mm512_srli_epi16(quad, Bits::kShift);
    _mm512_store_si512(codes + kQuad * 256 + 64 * j, quad);
  }
}

// Columns [first, first + columns) of a panel -> [columns/4][64][4] bytes.
template <class Bits>
void unpack(const IntPanel& panel, std::int64_t first, std::int64_t columns, std::uint8_t* codes) {
  for (std::int64_t k = first; k < first + columns; k += kStepColumns, codes += 8 * 256) {
    const Planes planes = planes_at<Bits>(panel, k);
    unpack_quad<Bits, 0>(planes, codes);
    unpack_quad<Bits, 1>(planes, codes);
    unpack_quad<Bits, 2>(planes, codes);
    unpack_quad<Bits, 3>(planes, codes);
    unpack_quad<Bits, 4>(planes, codes);
    unpack_quad<Bits, 5>(planes, codes);
    unpack_quad<Bits, 6>(planes, codes);
    unpack_quad<Bits, 7>(planes, codes);
  }
}

constexpr std::int64_t kPackedTokens = 3;
template <class Bits, Scales kScales>
constexpr PieceTile kPackedTiles[] = {nullptr, bits_tile<Bits, 1, kScales>,
                                      bits_tile<Bits, 2, kScales>, bits_tile<Bits, 3, kScales>};

template <class Bits>
void run_packed(const IntPanel& panel, TokenBlock& block) {
  block.tokens = panel.tokens;
  clear(block.sums, panel.tokens * 64);
  PanelPiece piece;
  piece.sums = block.sums;
  if (panel.groups_a_token_scale == 0) {
    kPackedTiles<Bits, Scales::weights>[panel.tokens](panel, piece);
  } else {
    kPackedTiles<Bits, Scales::both>[panel.tokens](panel, piece);
  }
  finish_block(panel, block);
}

template <class Bits>
void run_bits(const IntPanel& panel) {
  TokenBlock block;
  block.sums = reinterpret_cast<float*>(panel.scratch);
  if (panel.tokens <= kPackedTokens) {
    run_packed<Bits>(panel, block);
    return;
  }
  auto* const codes = reinterpret_cast<std::uint8_t*>(block.sums + kBlockTokens * 64);
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    clear(block.sums, block.tokens * 64);
    PanelPiece piece;
    piece.codes = codes;
    for (std::int64_t k = 0; k < panel.columns; k += kPieceColumns) {
      piece.first = k;
      piece.columns = panel.columns - k < kPieceColumns ? panel.columns - k : kPieceColumns;
      unpack<Bits>(panel, k, piece.columns, codes);
      unsigned_piece_avx512vnni(panel, piece, block);
    }
    finish_block(panel, block);
  }
}

}  // namespace
}  // namespace leq::cpu
