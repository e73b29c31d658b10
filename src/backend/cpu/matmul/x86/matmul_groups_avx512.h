// Tiles of grouped matmuls: an int32 sum for each group, folded into f32 sums that lie in memory
// between groups (they would not fit into registers beside the accumulators).
#pragma once

#include <type_traits>

#include "backend/cpu/matmul/x86/matmul_avx512.h"
#include "backend/cpu/matmul/x86/tall_tile_avx512.h"

namespace leq::cpu {

// Columns of a panel that all tokens of a block pass through before the next, a multiple of every
// group: 64 rows of them and the block's inputs stay in the L2 cache. In pieces of 512, which stay
// in the first cache, each tile of many tokens brings its f32 sums from the second four times as
// often; the sums of few tokens stay in the first as well.
inline constexpr std::int64_t kPieceColumns = 2048;
inline constexpr std::int64_t kFewTokensColumns = 512;
inline constexpr std::int64_t kSmallestGroup = 32;
inline constexpr std::int64_t kPieceGroups = kPieceColumns / kSmallestGroup;

// Scales and start values of a piece's groups as tiles take them. Converted in the tiles they stand
// between the last product of a group and the first of the next one: 8 % more time.
struct PieceTables {
  alignas(64) float scales[kPieceGroups][64];         // of grouped weights
  alignas(64) std::int32_t starts[kPieceGroups][64];  // of signed weights
};

// One piece of one panel for one tile of tokens.
struct PanelPiece {
  const std::uint8_t* codes = nullptr;  // bytes of the piece's first column, one code each
  std::int64_t first = 0;               // first column
  std::int64_t columns = 0;             // multiple of 16
  std::int64_t token = 0;               // first token
  int output = 0;                       // first of the tile's outputs
  float* sums = nullptr;                // [M][16 J] f32 sums: begun by a panel's first piece, kept
                                        // for the next one, finished by the last one
  const PieceTables* tables = nullptr;
  const std::uint8_t* ahead = nullptr;         // 64 bytes for each 16 columns, to be fetched
  const std::int32_t* token_starts = nullptr;  // [groups][kTallTokens], see start_from_tokens()
};

// The tiles of a block of tokens: `tokens` of them from `token` on, sums [tokens][64].
struct TokenBlock {
  std::int64_t token = 0;
  std::int64_t tokens = 0;
  float* sums = nullptr;
  PieceTables* tables = nullptr;
  NextPanel next;
};

// What lies in kIntScratchBytes.
constexpr std::int64_t kBlockTokens = 256;
struct GroupScratch {
  alignas(64) float sums[kBlockTokens * 64];
  PieceTables tables;
  alignas(64) std::uint8_t codes[kPieceColumns * 64];  // of fewer than 8 bits, unpacked
};
static_assert(sizeof(GroupScratch) <= kIntScratchBytes);

// All tiles of a piece of unsigned byte codes (matmul_uint8_avx512vnni.cpp).
void unsigned_piece_avx512vnni(const IntPanel& panel, const PanelPiece& piece,
                               TokenBlock& block) noexcept;

namespace {

inline __attribute__((always_inline)) __m512 weight_scale(const IntPanel& panel, std::int64_t group,
                                                          int output) {
  const std::uint16_t* scales = panel.group_scales + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(panel.scale_mul));
}

// Which sides have group scales.
enum class Scales { weights, tokens, both };

// Keeps loads and stores on their sides of it: g++ 12 would hold the f32 sums of a tile in
// registers from group to group, and then lacks registers for the int32 sums.
inline __attribute__((always_inline)) void memory_barrier() { asm volatile("" ::: "memory"); }

// f = fma(float(c), weight scale * token scale, f) for a tile's accumulators at the end of a group;
// sums [M][16 J]. Of many, all stores come last: the processor's queue of stores that wait for
// their numbers is shorter than a tile, and while it is full no products begin.
template <int M, int J, Scales kScales>
inline __attribute__((always_inline)) void fold(const IntPanel& panel, const PanelPiece& piece,
                                                std::int64_t group, const __m512 (&by_weight)[J],
                                                const __m512i (&c)[M][J], float* sums) {
  constexpr bool kManySums = M * J > 12;
  const std::int64_t stride = panel.token_scale_stride;
  const float* token = panel.token_scales;
  if constexpr (kScales != Scales::weights) {
    token += piece.token * stride + group / panel.groups_a_token_scale;
  }
  __m512 f[M][J];
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    __m512 by_token;
    if constexpr (kScales != Scales::weights) by_token = _mm512_set1_ps(token[m * stride]);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      __m512 scale;
      if constexpr (kScales == Scales::weights) scale = by_weight[j];
      if constexpr (kScales == Scales::tokens) scale = by_token;
      if constexpr (kScales == Scales::both) scale = _mm512_mul_ps(by_weight[j], by_token);
      f[m][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(c[m][j]), scale,
                                _mm512_load_ps(sums + (m * J + j) * 16));
    }
  }
  if constexpr (kManySums) memory_barrier();
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) _mm512_store_ps(sums + (m * J + j) * 16, f[m][j]);
  }
  if constexpr (kManySums) memory_barrier();
}

inline __attribute__((always_inline)) __m512i signed_start(const IntPanel& panel,
                                                           std::int64_t group, int output) {
  const std::int16_t* sums = panel.group_sums + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
  return start_value(_mm512_cvtepi16_epi32(half));
}

// -zero point * the inputs' sum, at most 255 * 128 * 127.
template <int M, int J>
inline __attribute__((always_inline)) void start_from_zeros(const IntPanel& panel,
                                                            const PanelPiece& piece,
                                                            std::int64_t group,
                                                            __m512i (&c)[M][J]) {
  const std::int32_t* sums = panel.token_sums + piece.token * panel.token_sum_stride + group;
  __m512i zeros[J];
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) zeros[j] = zero_points(panel, group, piece.output + 16 * j);
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m, sums += panel.token_sum_stride) {
    // A zero point lies in the lower half of its lane, so this multiplies by the sum's lower half.
    const __m512i sum = _mm512_set1_epi32(-*sums);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) c[m][j] = _mm512_madd_epi16(zeros[j], sum);
  }
}

// Where accumulators start: signed weights at -128 * the weights' sums, since the inputs are q +
// 128; unsigned ones at -zero point * the inputs' sums, with one zero point for all codes or with
// many.
enum class Start { weights, tokens, zeros };

inline void clear(float* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    _mm512_store_ps(sums + i, _mm512_setzero_ps());
    memory_barrier();  // no call of memset
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

// Whence a tile has its weights: here bytes that lie in the piece.
template <Fetch kFetch>
struct ByteColumns {
  // The int32 sums of M tokens x 16 J outputs over one group.
  template <int M, int J, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel&, const PanelPiece&,
                                                        const TallColumns& tile,
                                                        __m512i (&c)[M][J]) {
    const std::uint8_t* w = tile.weights;
    const std::uint8_t* x = tile.inputs;
    std::int64_t steps = tile.steps;
    do {
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
        __m512i weights[J];
        load_weights<kFetch>(w, weights);
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) {
          const __m512i input = broadcast_quad(x + m * tile.stride);
#pragma GCC unroll 4
          for (int j = 0; j < J; ++j) {
            if constexpr (kStart == Start::weights) {
              dot(c[m][j], input, weights[j]);
            } else {
              dot(c[m][j], weights[j], input);
            }
          }
        }
      }
    } while (--steps > 0);
  }
};

template <int M, int J>
inline __attribute__((always_inline)) void start_from_weights(const std::int32_t* starts,
                                                              __m512i (&c)[M][J]) {
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
    const __m512i value = _mm512_load_si512(starts + 16 * j);
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) c[m][j] = value;
  }
}

template <int M, int J>
inline __attribute__((always_inline)) void start_from_tokens(const std::int32_t* starts,
                                                             __m512i (&c)[M][J]) {
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    const __m512i value = _mm512_set1_epi32(starts[m]);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) c[m][j] = value;
  }
}

// M tokens x 16 J outputs over one piece.
template <int M, int J, Start kStart, Scales kScales, class Columns = ByteColumns<Fetch::twice>>
void piece_tile(const IntPanel& panel, const PanelPiece& piece) {
  TallColumns tile;
  tile.weights = piece.codes + piece.output * 4;
  tile.inputs = panel.inputs + piece.token * panel.input_stride + piece.first;
  tile.stride = panel.input_stride;
  tile.ahead = piece.ahead;
  float* const sums = piece.sums;
  if (piece.first == 0) clear(sums, M * J * 16);
  if (J == 2 && piece.first + piece.columns == panel.columns) {
    fetch_results<M>(panel, piece.token, piece.output);
  }
  const float* scales = piece.tables->scales[0] + piece.output;
  const std::int32_t* starts =
      kStart == Start::tokens ? piece.token_starts : piece.tables->starts[0] + piece.output;
  constexpr std::int64_t kNextStarts = kStart == Start::tokens ? kTallTokens : 64;
  const std::int64_t group_steps = panel.group / 16;
  std::int64_t left = piece.columns / 16;
  for (std::int64_t group = piece.first / panel.group; left > 0; ++group, left -= tile.steps) {
    tile.steps = group_steps < left ? group_steps : left;
    __m512i c[M][J];
    if constexpr (kStart == Start::zeros) {
      start_from_zeros(panel, piece, group, c);
      Columns::template add<M, J, kStart>(panel, piece, tile, c);
    } else if constexpr (J == 2) {
      tall_sums<M, kStart == Start::tokens ? TallStart::tokens : TallStart::outputs>(tile, starts,
                                                                                     c);
    } else if constexpr (kStart == Start::tokens) {
      start_from_tokens(starts, c);
      Columns::template add<M, J, kStart>(panel, piece, tile, c);
    } else {
      start_from_weights(starts, c);
      Columns::template add<M, J, kStart>(panel, piece, tile, c);
    }
    starts += kNextStarts;
    tile.weights += tile.steps * 1024;
    tile.inputs += tile.steps * 16;
    tile.ahead += tile.steps * 64;
    __m512 by_weight[J];
    if constexpr (kScales != Scales::tokens) {
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) by_weight[j] = _mm512_load_ps(scales + 16 * j);
      scales += 64;
    }
    fold<M, J, kScales>(panel, piece, group, by_weight, c, sums);
  }
  if (piece.first + piece.columns == panel.columns) finish_tile(panel, piece, M, 16 * J);
}

using PieceTile = void (*)(const IntPanel&, const PanelPiece&);
// Of 1 to kWideTokens tokens: where the first tile has its weights elsewhere ...
template <Start kStart, Scales kScales, class Columns>
constexpr PieceTile kFirstTiles[] = {
    piece_tile<1, 4, kStart, kScales, Columns>, piece_tile<2, 4, kStart, kScales, Columns>,
    piece_tile<3, 4, kStart, kScales, Columns>, piece_tile<4, 4, kStart, kScales, Columns>,
    piece_tile<5, 4, kStart, kScales, Columns>, piece_tile<6, 4, kStart, kScales, Columns>};
// ... and where it is as the others.
template <Start kStart, Scales kScales, Fetch kBest>
constexpr PieceTile kWideTiles[] = {
    piece_tile<1, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 1)>>,
    piece_tile<2, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 2)>>,
    piece_tile<3, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 3)>>,
    piece_tile<4, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 4)>>,
    piece_tile<5, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 5)>>,
    piece_tile<6, 4, kStart, kScales, ByteColumns<wide_tile_fetch(kBest, 6)>>};
template <Start kStart, Scales kScales>
constexpr PieceTile kTallTiles[] = {nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    nullptr,
                                    piece_tile<9, 2, kStart, kScales>,
                                    piece_tile<10, 2, kStart, kScales>,
                                    piece_tile<11, 2, kStart, kScales>,
                                    piece_tile<12, 2, kStart, kScales>};

// The tables of a piece.
template <Start kStart, Scales kScales>
void fill_tables(const IntPanel& panel, const PanelPiece& piece, PieceTables& tables) {
  const std::int64_t first = piece.first / panel.group;
  const std::int64_t groups = (piece.columns + panel.group - 1) / panel.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int output = 0; output < 64; output += 16) {
      if constexpr (kScales != Scales::tokens) {
        _mm512_store_ps(tables.scales[g] + output, weight_scale(panel, first + g, output));
      }
      if constexpr (kStart == Start::weights) {
        _mm512_store_si512(tables.starts[g] + output, signed_start(panel, first + g, output));
      }
    }
  }
}

// [groups of the piece][kTallTokens] start values of `tokens` tokens.
inline void fill_token_starts(const IntPanel& panel, const PanelPiece& piece, std::int64_t tokens,
                              std::int32_t* starts) {
  const std::int64_t first = piece.first / panel.group;
  const std::int64_t groups = (piece.columns + panel.group - 1) / panel.group;
  for (std::int64_t m = 0; m < tokens; ++m) {
    const std::int32_t* sums =
        panel.token_sums + (piece.token + m) * panel.token_sum_stride + first;
    for (std::int64_t g = 0; g < groups; ++g) starts[g * kTallTokens + m] = -panel.zero * sums[g];
  }
}

// `First`: whence the first tile of few tokens has its weights; void: as the others.
template <Start kStart, Scales kScales, class First = void>
void run_piece(const IntPanel& panel, const PanelPiece& whole, TokenBlock& block) {
  PanelPiece piece = whole;
  fill_tables<kStart, kScales>(panel, piece, *block.tables);
  piece.tables = block.tables;
  std::int32_t token_starts[kPieceGroups * kTallTokens];
  const bool wide = block.tokens <= kFewTokens;
  const std::int64_t most = wide ? kWideTokens : kTallTokens;
  const int width = wide ? 64 : 32;
  constexpr const PieceTile* kWide[] = {kWideTiles<kStart, kScales, Fetch::twice>,
                                        kWideTiles<kStart, kScales, Fetch::once>,
                                        kWideTiles<kStart, kScales, Fetch::never>};
  const PieceTile* const wide_tiles = kWide[static_cast<std::size_t>(panel.fetch)];
  const PieceTile* first_tiles = wide_tiles;
  if constexpr (!std::is_void_v<First>) first_tiles = kFirstTiles<kStart, kScales, First>;
  const std::int64_t tiles = (block.tokens + most - 1) / most;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = block.tokens * i / tiles;
    const std::int64_t count = block.tokens * (i + 1) / tiles - first;
    piece.token = block.token + first;
    if constexpr (kStart == Start::tokens) {
      fill_token_starts(panel, piece, count, token_starts);
      piece.token_starts = token_starts;
    }
    for (piece.output = 0; piece.output < 64; piece.output += width) {
      piece.sums = block.sums + first * 64 + piece.output * count;
      piece.ahead = take_ahead(block.next, piece.columns * 4);
      if (wide) {
        (i == 0 ? first_tiles : wide_tiles)[count - 1](panel, piece);
      } else {
        kTallTiles<kStart, kScales>[count](panel, piece);
      }
    }
  }
}

// A whole panel in blocks of tokens and pieces of columns: codes_of(first column, columns) returns
// a piece's byte codes, run_piece(panel, piece, block) adds them to the block's sums.
template <class RunPiece, class CodesOf>
void run_blocks(const IntPanel& panel, RunPiece run_piece, CodesOf codes_of) {
  const std::int64_t columns = panel.tokens <= kFewTokens ? kFewTokensColumns : kPieceColumns;
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  TokenBlock block;
  block.next = next_panel(panel);
  auto* const scratch = reinterpret_cast<GroupScratch*>(panel.scratch);
  block.sums = scratch->sums;
  block.tables = &scratch->tables;
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    PanelPiece piece;
    for (std::int64_t k = 0; k < panel.columns; k += columns) {
      piece.first = k;
      piece.columns = panel.columns - k < columns ? panel.columns - k : columns;
      piece.codes = codes_of(k, piece.columns);
      run_piece(panel, piece, block);
    }
  }
}

inline void run_byte_blocks(const IntPanel& panel,
                            void (*run_piece)(const IntPanel&, const PanelPiece&, TokenBlock&)) {
  run_blocks(panel, run_piece,
             [&](std::int64_t first, std::int64_t) { return panel.codes + first * 64; });
}

}  // namespace
}  // namespace leq::cpu
