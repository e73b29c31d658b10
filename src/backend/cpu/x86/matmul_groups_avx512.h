// Tiles of grouped matmuls: an int32 sum for each group, folded into f32 sums that lie in scratch
// between groups (they would not fit into registers beside the accumulators).
#pragma once

#include "backend/cpu/x86/matmul_avx512.h"

namespace leq::cpu {

// One piece of one panel for one tile of tokens.
struct PanelPiece {
  const std::uint8_t* codes = nullptr;  // bytes of the piece's first column, one code each
  std::int64_t first = 0;               // first column
  std::int64_t columns = 0;             // multiple of 16
  std::int64_t token = 0;               // first token
  int output = 0;                       // first of the tile's outputs
  float* sums = nullptr;                // [64 / 16 J][M][16 J] f32 sums, read and written
};

// The tiles of a block of tokens: `tokens` of them from `token` on, sums [tokens][64].
struct TokenBlock {
  std::int64_t token = 0;
  std::int64_t tokens = 0;
  float* sums = nullptr;
};

// All tiles of a piece of unsigned byte codes (matmul_uint8_avx512vnni.cpp).
void unsigned_piece_avx512vnni(const IntPanel& panel, const PanelPiece& piece,
                               const TokenBlock& block) noexcept;

namespace {

// Columns of a panel that all tokens of a block pass through before the next: 64 rows of them and a
// tile's inputs stay in the L1 and L2 caches. A multiple of every group.
constexpr std::int64_t kPieceColumns = 512;
// Tokens of a block: their f32 sums, [tokens][64], share kIntScratchBytes with an unpacked piece.
constexpr std::int64_t kBlockTokens = 256;
static_assert(kPieceColumns * 64 + kBlockTokens * 64 * sizeof(float) <= kIntScratchBytes);

inline __attribute__((always_inline)) __m512 weight_scale(const IntPanel& panel, std::int64_t group,
                                                          int output) {
  const std::uint16_t* scales = panel.group_scales + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(panel.scale_mul));
}

// Which sides have group scales.
enum class Scales { weights, tokens, both };

// f = fma(float(c), weight scale * token scale, f) for a tile's accumulators at the end of a group.
template <int M, int J, Scales kScales>
inline __attribute__((always_inline)) void fold(const IntPanel& panel, const PanelPiece& piece,
                                                std::int64_t group, const __m512i (&c)[M][J]) {
  __m512 by_weight[J];
  if constexpr (kScales != Scales::tokens) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) by_weight[j] = weight_scale(panel, group, piece.output + 16 * j);
  }
  const float* token = panel.token_scales;
  if constexpr (kScales != Scales::weights) {
    token += piece.token * panel.token_scale_stride + group / panel.groups_a_token_scale;
  }
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    __m512 by_token;
    if constexpr (kScales != Scales::weights)
      by_token = _mm512_set1_ps(token[m * panel.token_scale_stride]);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      __m512 scale;
      if constexpr (kScales == Scales::weights) scale = by_weight[j];
      if constexpr (kScales == Scales::tokens) scale = by_token;
      if constexpr (kScales == Scales::both) scale = _mm512_mul_ps(by_weight[j], by_token);
      float* sum = piece.sums + (m * J + j) * 16;
      const __m512 f = _mm512_cvtepi32_ps(c[m][j]);
      _mm512_store_ps(sum, _mm512_fmadd_ps(f, scale, _mm512_load_ps(sum)));
    }
  }
}

// Where a group's accumulators start. Signed weights: -128 * the weights' sum, since the inputs are
// q + 128. Unsigned weights: -zero point * the inputs' sum, at most 255 * 128 * 127.
template <int M, int J, bool kUnsigned>
inline __attribute__((always_inline)) void start(const IntPanel& panel, const PanelPiece& piece,
                                                 std::int64_t group, __m512i (&c)[M][J]) {
  if constexpr (kUnsigned) {
    const std::int32_t* sums = panel.token_sums + piece.token * panel.token_sum_stride + group;
    __m512i zeros[J];
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) zeros[j] = zero_points(panel, group, piece.output + 16 * j);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m, sums += panel.token_sum_stride) {
      // A zero point lies in the lower half of its lane, so this multiplies by the sum's lower
      // half.
      const __m512i sum = _mm512_set1_epi32(-*sums);
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) c[m][j] = _mm512_madd_epi16(zeros[j], sum);
    }
  } else {
    const std::int16_t* sums = panel.group_sums + group * 64 + piece.output;
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + 16 * j));
      const __m512i value = start_value(_mm512_cvtepi16_epi32(half));
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) c[m][j] = value;
    }
  }
}

// M tokens x 16 J outputs over one piece of byte codes, in quads of 64 rows.
template <int M, int J, bool kUnsigned, Scales kScales>
void piece_tile(const IntPanel& panel, const PanelPiece& piece) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* w = piece.codes + piece.output * 4;
  const std::uint8_t* x = panel.inputs + piece.token * stride + piece.first;
  const std::int64_t end = piece.first + piece.columns;
  std::int64_t group = piece.first / panel.group;
  for (std::int64_t k = piece.first; k < end; ++group) {
    const std::int64_t stop = k + panel.group < end ? k + panel.group : end;
    __m512i c[M][J];
    start<M, J, kUnsigned>(panel, piece, group, c);
    for (; k < stop; k += 16) {
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
        __m512i weights[J];
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) {
          weights[j] = _mm512_load_si512(w + 64 * j);
          if constexpr (J == 4) {
            fetch_ahead(w + 64 * j);
          } else {
            fetch_for_many(w + 64 * j);
          }
        }
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) {
          const __m512i input = broadcast_quad(x + m * stride);
#pragma GCC unroll 4
          for (int j = 0; j < J; ++j) {
            if constexpr (kUnsigned) {
              dot(c[m][j], weights[j], input);
            } else {
              dot(c[m][j], input, weights[j]);
            }
          }
        }
      }
    }
    fold<M, J, kScales>(panel, piece, group, c);
  }
}

// Scales and stores a tile's finished sums.
inline void finish_tile(const IntPanel& panel, const PanelPiece& piece, std::int64_t tokens,
                        int width) {
  const float* sum = piece.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (int j = 0; j < width; j += 16, sum += 16) {
      finish(panel, piece.token + m, piece.output + j, _mm512_load_ps(sum));
    }
  }
}

using PieceTile = void (*)(const IntPanel&, const PanelPiece&);
template <bool kUnsigned, Scales kScales>
constexpr PieceTile kWideTiles[] = {nullptr,
                                    piece_tile<1, 4, kUnsigned, kScales>,
                                    piece_tile<2, 4, kUnsigned, kScales>,
                                    piece_tile<3, 4, kUnsigned, kScales>,
                                    piece_tile<4, 4, kUnsigned, kScales>,
                                    piece_tile<5, 4, kUnsigned, kScales>,
                                    piece_tile<6, 4, kUnsigned, kScales>};
template <bool kUnsigned, Scales kScales>
constexpr PieceTile kTallTiles[] = {nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    piece_tile<9, 2, kUnsigned, kScales>,
                                    piece_tile<10, 2, kUnsigned, kScales>,
                                    piece_tile<11, 2, kUnsigned, kScales>,
                                    piece_tile<12, 2, kUnsigned, kScales>};

// Calls visit(piece, tokens, width) for each tile of a block, with its place filled in.
template <class Visit>
inline __attribute__((always_inline)) void for_each_tile(const TokenBlock& block, PanelPiece piece,
                                                         Visit visit) {
  const bool wide = block.tokens <= kFewTokens;
  const std::int64_t most = wide ? kWideTokens : kTallTokens;
  const int width = wide ? 64 : 32;
  const std::int64_t tiles = (block.tokens + most - 1) / most;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = block.tokens * i / tiles;
    const std::int64_t count = block.tokens * (i + 1) / tiles - first;
    piece.token = block.token + first;
    for (piece.output = 0; piece.output < 64; piece.output += width) {
      piece.sums = block.sums + first * 64 + piece.output * count;
      visit(piece, count, width);
    }
  }
}

template <bool kUnsigned, Scales kScales>
void run_piece(const IntPanel& panel, const PanelPiece& piece, const TokenBlock& block) {
  for_each_tile(block, piece, [&](const PanelPiece& tile, std::int64_t tokens, int width) {
    (width == 64 ? kWideTiles<kUnsigned, kScales> : kTallTiles<kUnsigned, kScales>)[tokens](panel,
                                                                                            tile);
  });
}

inline void finish_block(const IntPanel& panel, const TokenBlock& block) {
  for_each_tile(block, PanelPiece{}, [&](const PanelPiece& tile, std::int64_t tokens, int width) {
    finish_tile(panel, tile, tokens, width);
  });
}

inline void clear(float* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) _mm512_store_ps(sums + i, _mm512_setzero_ps());
}

// A whole panel in blocks of tokens and pieces of columns: codes_of(first column, columns) returns
// a piece's byte codes, run_piece(panel, piece, block) adds them to the block's sums.
template <class RunPiece, class CodesOf>
void run_blocks(const IntPanel& panel, RunPiece run_piece, CodesOf codes_of) {
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  TokenBlock block;
  block.sums = reinterpret_cast<float*>(panel.scratch);
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    clear(block.sums, block.tokens * 64);
    PanelPiece piece;
    for (std::int64_t k = 0; k < panel.columns; k += kPieceColumns) {
      piece.first = k;
      piece.columns = panel.columns - k < kPieceColumns ? panel.columns - k : kPieceColumns;
      piece.codes = codes_of(k, piece.columns);
      run_piece(panel, piece, block);
    }
    finish_block(panel, block);
  }
}

inline void run_byte_blocks(const IntPanel& panel,
                            void (*run_piece)(const IntPanel&, const PanelPiece&,
                                              const TokenBlock&)) {
  run_blocks(panel, run_piece,
             [&](std::int64_t first, std::int64_t) { return panel.codes + first * 64; });
}

}  // namespace
}  // namespace leq::cpu
