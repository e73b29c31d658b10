// Tiles of matmuls with groups: each group has an int32 sum, which is folded into f32 sums. These
// are in memory between groups, because registers do not suffice for them beside the accumulators.
#pragma once

#include <cstddef>

#include "backend/cpu/matmul/x86/matmul_fold_avx512.h"
#include "backend/cpu/matmul/x86/tall_tile_avx512.h"

namespace leq::cpu {

// The block of tokens [token, token + tokens), with the f32 sums [tokens][64] of its tiles.
struct TokenBlock {
  std::int64_t token = 0;
  std::int64_t tokens = 0;
  float* sums = nullptr;
  KTileTables* tables = nullptr;
  NextPanel next;
};

// Layout of the scratch of kIntScratchBytes.
constexpr std::int64_t kBlockTokens = 256;
struct GroupScratch {
  alignas(64) float sums[kBlockTokens * 64];
  KTileTables tables;
  alignas(64) std::uint8_t codes[kKTileColumns * 64];  // unpacked codes below 8 bits
};
static_assert(sizeof(GroupScratch) <= kIntScratchBytes);

// Multiplies the tokens of a tile x 64 or 32 outputs over one K tile.
using KTileKernel = void (*)(const IntPanel&, const PanelKTile&);

// Of unsigned byte codes (matmul_uint8_avx512vnni.cpp): runs all tiles of a K tile; and tiles of 1
// to kWideTokens tokens x 64 outputs.
void unsigned_k_tile_avx512vnni(const IntPanel& panel, const PanelKTile& k_tile,
                                TokenBlock& block) noexcept;
const KTileKernel* unsigned_wide_tiles_avx512vnni(const IntPanel& panel) noexcept;

namespace {

inline __attribute__((always_inline)) __m512i signed_start(const IntPanel& panel,
                                                           std::int64_t group, int output) {
  const std::int16_t* sums = panel.group_sums + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
  return start_value(_mm512_cvtepi16_epi32(half));
}

// Starts the sums at -zero point * the inputs' sum, which is at most 255 * 128 * 127.
template <int M, int J>
inline __attribute__((always_inline)) void start_from_zeros(const IntPanel& panel,
                                                            const PanelKTile& k_tile,
                                                            std::int64_t group,
                                                            __m512i (&c)[M][J]) {
  const std::int32_t* sums = panel.token_sums + k_tile.token * panel.token_sum_stride + group;
  __m512i zeros[J];
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) zeros[j] = zero_points(panel, group, k_tile.output + 16 * j);
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m, sums += panel.token_sum_stride) {
    // Zero points are in the lower halves of lanes, which the lower half of the sum multiplies.
    const __m512i sum = _mm512_set1_epi32(-*sums);
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) c[m][j] = _mm512_madd_epi16(zeros[j], sum);
  }
}

// Start values of accumulators. weights: -128 * the weights' sums for signed weights, because
// inputs are q + 128; tokens, zeros: -zero point * the inputs' sums for unsigned weights, with one
// zero point for all codes (tokens) or with many (zeros).
enum class Start { weights, tokens, zeros };

inline void clear(float* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) {
    _mm512_store_ps(sums + i, _mm512_setzero_ps());
    memory_barrier();  // otherwise g++ calls memset
  }
}

// Scales and stores the finished sums of a tile.
inline void finish_tile(const IntPanel& panel, const PanelKTile& k_tile, std::int64_t tokens,
                        int width) {
  const float* sum = k_tile.sums;
  for (std::int64_t m = 0; m < tokens; ++m) {
    for (int j = 0; j < width; j += 16, sum += 16) {
      finish(panel, k_tile.token + m, k_tile.output + j, _mm512_load_ps(sum));
    }
  }
}

// The source of a tile's weights: bytes in the K tile.
template <Fetch kFetch>
struct ByteColumns {
  // Adds the products of M tokens x 16 J outputs over one group to their int32 sums.
  template <int M, int J, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel&, const PanelKTile&,
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

// Multiplies M tokens x 16 J outputs over one K tile.
template <int M, int J, Start kStart, class Columns = ByteColumns<Fetch::twice>>
void k_tile_kernel(const IntPanel& panel, const PanelKTile& k_tile) {
  TallColumns tile;
  tile.weights = k_tile.codes + k_tile.output * 4;
  tile.inputs = panel.inputs + k_tile.token * panel.input_stride + k_tile.first;
  tile.stride = panel.input_stride;
  tile.ahead = k_tile.ahead;
  float* const sums = k_tile.sums;
  if (k_tile.first == 0) clear(sums, M * J * 16);
  if (J == 2 && k_tile.first + k_tile.columns == panel.columns) {
    fetch_results<M>(panel, k_tile.token, k_tile.output);
  }
  const float* scales = k_tile.tables->scales[0] + k_tile.output;
  const std::int32_t* starts =
      kStart == Start::tokens ? k_tile.token_starts : k_tile.tables->starts[0] + k_tile.output;
  constexpr std::int64_t kNextStarts = kStart == Start::tokens ? kTallTokens : 64;
  const std::int64_t group_steps = panel.group / 16;
  std::int64_t left = k_tile.columns / 16;
  for (std::int64_t group = k_tile.first / panel.group; left > 0; ++group, left -= tile.steps) {
    tile.steps = group_steps < left ? group_steps : left;
    __m512i c[M][J];
    if constexpr (kStart == Start::zeros) {
      start_from_zeros(panel, k_tile, group, c);
      Columns::template add<M, J, kStart>(panel, k_tile, tile, c);
    } else if constexpr (J == 2) {
      tall_sums<M, kStart == Start::tokens ? TallStart::tokens : TallStart::outputs>(tile, starts,
                                                                                     c);
    } else if constexpr (kStart == Start::tokens) {
      start_from_tokens(starts, c);
      Columns::template add<M, J, kStart>(panel, k_tile, tile, c);
    } else {
      start_from_weights(starts, c);
      Columns::template add<M, J, kStart>(panel, k_tile, tile, c);
    }
    starts += kNextStarts;
    tile.weights += tile.steps * 1024;
    tile.inputs += tile.steps * 16;
    tile.ahead += tile.steps * 64;
    fold(
        panel, k_tile, group, [&](int output) { return _mm512_load_ps(scales + output); }, c, sums);
    scales += 64;
  }
  if (k_tile.first + k_tile.columns == panel.columns) finish_tile(panel, k_tile, M, 16 * J);
}

// Kernels for the first tile, of 1 to kWideTokens tokens, whose weights come from `Columns` ...
template <Start kStart, Fetch kBest>
constexpr KTileKernel kWideTilesOf[] = {
    k_tile_kernel<1, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 1)>>,
    k_tile_kernel<2, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 2)>>,
    k_tile_kernel<3, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 3)>>,
    k_tile_kernel<4, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 4)>>,
    k_tile_kernel<5, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 5)>>,
    k_tile_kernel<6, 4, kStart, ByteColumns<wide_tile_fetch(kBest, 6)>>};
template <Start kStart>
constexpr const KTileKernel* kWideTiles[] = {kWideTilesOf<kStart, Fetch::twice>,
                                             kWideTilesOf<kStart, Fetch::once>,
                                             kWideTilesOf<kStart, Fetch::never>};
// ... and kernels for all other tiles, whose weights are bytes in the K tile.
template <Start kStart>
constexpr KTileKernel kTallTiles[] = {nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      k_tile_kernel<9, 2, kStart>,
                                      k_tile_kernel<10, 2, kStart>,
                                      k_tile_kernel<11, 2, kStart>,
                                      k_tile_kernel<12, 2, kStart>};

// The kernels of a K tile's tiles, indexed by tokens minus one: of few tokens the first tile, which
// may read codes as they are stored, and the others, which read bytes; of many tokens all.
struct TileKernels {
  const KTileKernel* first = nullptr;
  const KTileKernel* wide = nullptr;
  const KTileKernel* tall = nullptr;
};

// Fills the tables of a K tile.
template <Start kStart>
void fill_tables(const IntPanel& panel, const PanelKTile& k_tile, KTileTables& tables) {
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int output = 0; output < 64; output += 16) {
      if (panel.group_scales != nullptr) {
        _mm512_store_ps(tables.scales[g] + output, weight_scale(panel, first + g, output));
      }
      if constexpr (kStart == Start::weights) {
        _mm512_store_si512(tables.starts[g] + output, signed_start(panel, first + g, output));
      }
    }
  }
}

// Fills [groups of the K tile][kTallTokens] with start values for `tokens` tokens.
inline void fill_token_starts(const IntPanel& panel, const PanelKTile& k_tile, std::int64_t tokens,
                              std::int32_t* starts) {
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t m = 0; m < tokens; ++m) {
    const std::int32_t* sums =
        panel.token_sums + (k_tile.token + m) * panel.token_sum_stride + first;
    for (std::int64_t g = 0; g < groups; ++g) starts[g * kTallTokens + m] = -panel.zero * sums[g];
  }
}

template <Start kStart>
void run_tiles(const IntPanel& panel, const PanelKTile& whole, const TileKernels& kernels,
               TokenBlock& block) {
  PanelKTile k_tile = whole;
  fill_tables<kStart>(panel, k_tile, *block.tables);
  k_tile.tables = block.tables;
  std::int32_t token_starts[kKTileGroups * kTallTokens];
  const bool wide = block.tokens <= kFewTokens;
  const std::int64_t most = wide ? kWideTokens : kTallTokens;
  const int width = wide ? 64 : 32;
  const std::int64_t tiles = (block.tokens + most - 1) / most;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = block.tokens * i / tiles;
    const std::int64_t count = block.tokens * (i + 1) / tiles - first;
    k_tile.token = block.token + first;
    if constexpr (kStart == Start::tokens) {
      fill_token_starts(panel, k_tile, count, token_starts);
      k_tile.token_starts = token_starts;
    }
    for (k_tile.output = 0; k_tile.output < 64; k_tile.output += width) {
      k_tile.sums = block.sums + first * 64 + k_tile.output * count;
      k_tile.ahead = take_ahead(block.next, k_tile.columns * 4);
      const KTileKernel* const of = !wide ? kernels.tall : i == 0 ? kernels.first : kernels.wide;
      of[count - 1](panel, k_tile);
    }
  }
}

// Of byte codes.
template <Start kStart>
void run_k_tile(const IntPanel& panel, const PanelKTile& k_tile, TokenBlock& block) {
  const KTileKernel* const wide = kWideTiles<kStart>[static_cast<std::size_t>(panel.fetch)];
  run_tiles<kStart>(panel, k_tile, {wide, wide, kTallTiles<kStart>}, block);
}

// Multiplies a whole panel in blocks of tokens and K tiles. codes_of(first column, columns) returns
// a K tile's byte codes; run_k_tile(panel, K tile, block) adds them to the block's sums.
template <class RunKTile, class CodesOf>
void run_blocks(const IntPanel& panel, RunKTile run_k_tile, CodesOf codes_of) {
  const std::int64_t columns = panel.tokens <= kFewTokens ? kFewTokensColumns : kKTileColumns;
  const std::int64_t blocks = (panel.tokens + kBlockTokens - 1) / kBlockTokens;
  TokenBlock block;
  block.next = next_panel(panel);
  auto* const scratch = reinterpret_cast<GroupScratch*>(panel.scratch);
  block.sums = scratch->sums;
  block.tables = &scratch->tables;
  for (std::int64_t b = 0; b < blocks; ++b) {
    block.token = panel.tokens * b / blocks;
    block.tokens = panel.tokens * (b + 1) / blocks - block.token;
    PanelKTile k_tile;
    for (std::int64_t k = 0; k < panel.columns; k += columns) {
      k_tile.first = k;
      k_tile.columns = panel.columns - k < columns ? panel.columns - k : columns;
      k_tile.codes = codes_of(k, k_tile.columns);
      run_k_tile(panel, k_tile, block);
    }
  }
}

inline void run_byte_blocks(const IntPanel& panel,
                            void (*run_k_tile)(const IntPanel&, const PanelKTile&, TokenBlock&)) {
  run_blocks(panel, run_k_tile,
             [&](std::int64_t first, std::int64_t) { return panel.codes + first * 64; });
}

}  // namespace
}  // namespace leq::cpu
