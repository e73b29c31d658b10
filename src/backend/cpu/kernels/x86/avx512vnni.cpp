// AVX-512's kernels, but bytes are multiplied in quads by vpdpbusd: int8 keys of attention, and
// integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/int8_scores.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/row_tiles.h"
#include "backend/cpu/kernels/x86/super_tiles.h"
#include "backend/cpu/kernels/x86/vnni.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

// Columns of a panel that are multiplied by all tokens of a block before the next columns, so that
// 64 rows of them remain in L1; a multiple of every group.
constexpr std::int64_t kKTileColumns = 512;
constexpr std::int64_t kKTileGroups = kKTileColumns / 16;

// Scales and start values of a K tile's groups, converted in advance for its tiles. Conversion in
// the tiles delayed the first product of each group, which took 8 % more time.
struct KTileTables {
  alignas(64) float scales[kKTileGroups][64];         // scales of weights with groups
  alignas(64) std::int32_t starts[kKTileGroups][64];  // start values for signed weights
};

// The work of one tile of tokens on one K tile of one panel.
struct PanelKTile {
  const std::uint8_t* codes = nullptr;  // byte codes at the K tile's first column
  std::int64_t first = 0;               // first column
  std::int64_t columns = 0;             // multiple of 16
  std::int64_t token = 0;               // first token
  int output = 0;                       // first output of the tile
  float* sums = nullptr;                // [M][outputs] f32 sums; a panel's first K tile sets them,
                                        // later K tiles add to them, and the last one finishes them
  const KTileTables* tables = nullptr;
  const std::uint8_t* ahead = nullptr;         // 64 bytes of it are prefetched per 16 columns
  const std::int32_t* token_starts = nullptr;  // [groups][kWideTokens]; see start_from_tokens()
};

// The sides that have group scales.
enum class Scales { weights, tokens, both };

// A compiler barrier for loads and stores. Without it g++ 12 holds a tile's f32 sums in registers
// between groups, so that registers do not suffice for the int32 sums.
inline __attribute__((always_inline)) void memory_barrier() { asm volatile("" ::: "memory"); }

// The scale of a sum: weight scale * token scale, or the only one that there is.
template <Scales kScales>
inline __attribute__((always_inline)) __m512 scale_of(__m512 by_weight, __m512 by_token) {
  if constexpr (kScales == Scales::weights) return by_weight;
  if constexpr (kScales == Scales::tokens) return by_token;
  return _mm512_mul_ps(by_weight, by_token);
}

// f = fma(float(c), weight scale * token scale, f) for a tile of few tokens at the end of a group;
// sums [M][64]. With many sums all stores are last: the processor's store queue is shorter than a
// tile, and no products start while it is full of stores that wait for their data.
template <int M, Scales kScales, class WeightScale>
inline __attribute__((always_inline)) void add_scaled(const IntPanel& panel,
                                                      const PanelKTile& k_tile, std::int64_t group,
                                                      WeightScale weight_scale,
                                                      const __m512i (&c)[M][4], float* sums) {
  constexpr bool kManySums = M > 3;
  const std::int64_t stride = panel.token_scale_stride;
  const float* token = panel.token_scales;
  if constexpr (kScales != Scales::weights) {
    token += k_tile.token * stride + group / panel.groups_a_token_scale;
  }
  __m512 by_weight[4] = {};
  if constexpr (kScales != Scales::tokens) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) by_weight[j] = weight_scale(16 * j);
  }
  __m512 f[M][4];
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
    __m512 by_token = {};
    if constexpr (kScales != Scales::weights) by_token = _mm512_set1_ps(token[m * stride]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      f[m][j] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(c[m][j]), scale_of<kScales>(by_weight[j], by_token),
                          _mm512_load_ps(sums + (m * 4 + j) * 16));
    }
  }
  if constexpr (kManySums) memory_barrier();
#pragma GCC unroll 6
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(sums + (m * 4 + j) * 16, f[m][j]);
  }
  if constexpr (kManySums) memory_barrier();
}

// Folds a group with the scales that the panel has; they are looked at once a group, so that each
// main loop is compiled once. weight_scale(output): of 16 outputs of the tile.
template <int M, class WeightScale>
inline __attribute__((always_inline)) void fold(const IntPanel& panel, const PanelKTile& k_tile,
                                                std::int64_t group, WeightScale weight_scale,
                                                const __m512i (&c)[M][4], float* sums) {
  if (panel.groups_a_token_scale == 0) {
    add_scaled<M, Scales::weights>(panel, k_tile, group, weight_scale, c, sums);
  } else if (panel.group_scales == nullptr) {
    add_scaled<M, Scales::tokens>(panel, k_tile, group, weight_scale, c, sums);
  } else {
    add_scaled<M, Scales::both>(panel, k_tile, group, weight_scale, c, sums);
  }
}

// Tiles of matmuls with groups: each group has an int32 sum, which is folded into f32 sums. Tiles
// of few tokens hold these in memory between groups, because registers do not suffice for them
// beside the accumulators; tiles of many tokens hold 12 accumulators and 12 f32 sums in registers.

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

// Operands of a tile of few tokens, for one group.
struct WideColumns {
  const std::uint8_t* weights = nullptr;  // [quads][64][4]
  const std::uint8_t* inputs = nullptr;   // [M][stride], beginning at the first column
  std::int64_t stride = 0;
  std::int64_t steps = 0;  // steps of 16 columns, > 0
};

// The source of a tile's weights: bytes in the K tile.
template <Fetch kFetch>
struct ByteColumns {
  // Adds the products of M tokens x 64 outputs over one group to their int32 sums.
  template <int M, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel&, const PanelKTile&,
                                                        const WideColumns& tile,
                                                        __m512i (&c)[M][4]) {
    const std::uint8_t* w = tile.weights;
    const std::uint8_t* x = tile.inputs;
    std::int64_t steps = tile.steps;
    do {
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
        __m512i weights[4];
        load_weights<kFetch>(w, weights);
        // Otherwise g++ 12 loads them again for each of two or three tokens.
#pragma GCC unroll 4
        for (__m512i& codes : weights) asm("" : "+v"(codes));
#pragma GCC unroll 12
        for (int m = 0; m < M; ++m) {
          const __m512i input = broadcast_quad(x + m * tile.stride);
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) {
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

// Sets accumulators to the start values of a group.
template <Start kStart, int M, int J>
inline __attribute__((always_inline)) void start_group(const IntPanel& panel,
                                                       const PanelKTile& k_tile, std::int64_t group,
                                                       const std::int32_t* starts,
                                                       __m512i (&c)[M][J]) {
  if constexpr (kStart == Start::zeros) {
    start_from_zeros(panel, k_tile, group, c);
  } else if constexpr (kStart == Start::tokens) {
    start_from_tokens(starts, c);
  } else {
    start_from_weights(starts, c);
  }
}

// Multiplies M tokens x all 64 outputs over one K tile.
template <int M, Start kStart, class Columns = ByteColumns<Fetch::twice>>
void wide_k_tile(const IntPanel& panel, const PanelKTile& k_tile) {
  WideColumns tile;
  tile.weights = k_tile.codes;
  tile.inputs = panel.inputs + k_tile.token * panel.input_stride + k_tile.first;
  tile.stride = panel.input_stride;
  float* const sums = k_tile.sums;
  if (k_tile.first == 0) clear(sums, M * 64);
  const float* scales = k_tile.tables->scales[0];
  const std::int32_t* starts =
      kStart == Start::tokens ? k_tile.token_starts : k_tile.tables->starts[0];
  constexpr std::int64_t kNextStarts = kStart == Start::tokens ? kWideTokens : 64;
  const std::int64_t group_steps = panel.group / 16;
  std::int64_t left = k_tile.columns / 16;
  for (std::int64_t group = k_tile.first / panel.group; left > 0; ++group, left -= tile.steps) {
    tile.steps = group_steps < left ? group_steps : left;
    __m512i c[M][4];
    start_group<kStart>(panel, k_tile, group, starts, c);
    Columns::template add<M, kStart>(panel, k_tile, tile, c);
    starts += kNextStarts;
    tile.weights += tile.steps * 1024;
    tile.inputs += tile.steps * 16;
    fold(
        panel, k_tile, group, [&](int output) { return _mm512_load_ps(scales + output); }, c, sums);
    scales += 64;
  }
  if (k_tile.first + k_tile.columns == panel.columns) finish_tile(panel, k_tile, M, 64);
}

// Multiplies M tokens x 32 outputs over one K tile. Each 16 columns prefetch a line of the next
// panel.
template <int M, Start kStart, Scales kScales>
void tall_k_tile(const IntPanel& panel, const PanelKTile& k_tile) {
  const bool last = k_tile.first + k_tile.columns == panel.columns;
  if (last) fetch_results<M>(panel, k_tile.token, k_tile.output);
  if (k_tile.first == 0) clear(k_tile.sums, M * 32);
  __m512 f[M][2];
#pragma GCC unroll 12
  for (int i = 0; i < 2 * M; ++i) f[i / 2][i % 2] = _mm512_load_ps(k_tile.sums + 16 * i);
  const std::int64_t stride = panel.input_stride, scale_stride = panel.token_scale_stride;
  const std::uint8_t* w = k_tile.codes + k_tile.output * 4;
  const std::uint8_t* x = panel.inputs + k_tile.token * stride + k_tile.first;
  const std::uint8_t* ahead = k_tile.ahead;
  const float* by_weight = k_tile.tables->scales[0] + k_tile.output;
  const float* const token_scales = panel.token_scales + k_tile.token * scale_stride;
  const std::int32_t* starts =
      kStart == Start::tokens ? k_tile.token_starts : k_tile.tables->starts[0] + k_tile.output;
  constexpr std::int64_t kNextStarts = kStart == Start::tokens ? kWideTokens : 64;
  const std::int64_t group_steps = panel.group / 16;
  std::int64_t left = k_tile.columns / 16;
  for (std::int64_t group = k_tile.first / panel.group; left > 0; ++group) {
    __m512i c[M][2];
    start_group<kStart>(panel, k_tile, group, starts, c);
    starts += kNextStarts;
    std::int64_t steps = group_steps < left ? group_steps : left;
    left -= steps;
    do {
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
      ahead += 64;
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
        const __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
          const __m512i input = broadcast_quad(x + m * stride);
          if constexpr (kStart == Start::weights) {
            dot(c[m][0], input, w0);
            dot(c[m][1], input, w1);
          } else {
            dot(c[m][0], w0, input);
            dot(c[m][1], w1, input);
          }
        }
      }
    } while (--steps > 0);
    const float* by_token = token_scales;
    if constexpr (kScales != Scales::weights) by_token += group / panel.groups_a_token_scale;
    const __m512 scales[2] = {_mm512_load_ps(by_weight), _mm512_load_ps(by_weight + 16)};
    by_weight += 64;
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m) {
      const __m512 token_scale = _mm512_set1_ps(by_token[m * scale_stride]);
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) {
        f[m][j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(c[m][j]),
                                  scale_of<kScales>(scales[j], token_scale), f[m][j]);
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < 2 * M; ++i) _mm512_store_ps(k_tile.sums + 16 * i, f[i / 2][i % 2]);
  if (last) finish_tile(panel, k_tile, M, 32);
}

// Kernels for tiles of few tokens, indexed by tokens minus one.
template <Start kStart, Fetch kBest>
constexpr KTileKernel kWideTilesOf[] = {
    wide_k_tile<1, kStart, ByteColumns<wide_tile_fetch(kBest, 1)>>,
    wide_k_tile<2, kStart, ByteColumns<wide_tile_fetch(kBest, 2)>>,
    wide_k_tile<3, kStart, ByteColumns<wide_tile_fetch(kBest, 3)>>,
    wide_k_tile<4, kStart, ByteColumns<wide_tile_fetch(kBest, 4)>>,
    wide_k_tile<5, kStart, ByteColumns<wide_tile_fetch(kBest, 5)>>,
    wide_k_tile<6, kStart, ByteColumns<wide_tile_fetch(kBest, 6)>>};
template <Start kStart>
constexpr const KTileKernel* kWideTiles[] = {kWideTilesOf<kStart, Fetch::twice>,
                                             kWideTilesOf<kStart, Fetch::once>,
                                             kWideTilesOf<kStart, Fetch::never>};
// Of more than kFewTokens tokens, which are divided into tiles of 5 and 6.
template <Start kStart, Scales kScales>
constexpr KTileKernel kTallTiles[] = {nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      tall_k_tile<5, kStart, kScales>,
                                      tall_k_tile<6, kStart, kScales>};
template <Start kStart>
const KTileKernel* tall_tiles(const IntPanel& panel) {
  if (panel.groups_a_token_scale == 0) return kTallTiles<kStart, Scales::weights>;
  if (panel.group_scales == nullptr) return kTallTiles<kStart, Scales::tokens>;
  return kTallTiles<kStart, Scales::both>;
}

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

// Fills [groups of the K tile][kWideTokens] with start values for `tokens` tokens.
inline void fill_token_starts(const IntPanel& panel, const PanelKTile& k_tile, std::int64_t tokens,
                              std::int32_t* starts) {
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t m = 0; m < tokens; ++m) {
    const std::int32_t* sums =
        panel.token_sums + (k_tile.token + m) * panel.token_sum_stride + first;
    for (std::int64_t g = 0; g < groups; ++g) starts[g * kWideTokens + m] = -panel.zero * sums[g];
  }
}

template <Start kStart>
void run_tiles(const IntPanel& panel, const PanelKTile& whole, const TileKernels& kernels,
               TokenBlock& block) {
  PanelKTile k_tile = whole;
  fill_tables<kStart>(panel, k_tile, *block.tables);
  k_tile.tables = block.tables;
  std::int32_t token_starts[kKTileGroups * kWideTokens];
  const bool wide = block.tokens <= kFewTokens;
  const int width = wide ? 64 : 32;
  const std::int64_t tiles = (block.tokens + kWideTokens - 1) / kWideTokens;
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
  run_tiles<kStart>(panel, k_tile, {wide, wide, tall_tiles<kStart>(panel)}, block);
}

// Multiplies a whole panel in blocks of tokens and K tiles. codes_of(first column, columns) returns
// a K tile's byte codes; run_k_tile(panel, K tile, block) adds them to the block's sums.
template <class RunKTile, class CodesOf>
void run_blocks(const IntPanel& panel, RunKTile run_k_tile, CodesOf codes_of) {
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
    for (std::int64_t k = 0; k < panel.columns; k += kKTileColumns) {
      const std::int64_t left = panel.columns - k;
      k_tile.first = k;
      k_tile.columns = left < kKTileColumns ? left : kKTileColumns;
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

void int8_groups(const IntPanel& panel) noexcept {
  run_byte_blocks(panel, run_k_tile<Start::weights>);
}

void run_unsigned_k_tile(const IntPanel& panel, const PanelKTile& k_tile, TokenBlock& block) {
  (panel.zeros == nullptr ? run_k_tile<Start::tokens> : run_k_tile<Start::zeros>)(panel, k_tile,
                                                                                  block);
}
void uint8_groups(const IntPanel& panel) noexcept { run_byte_blocks(panel, run_unsigned_k_tile); }

// Group-scaled weights of fewer than 8 bits times int8 activations. A few tokens use the codes as
// they are stored in the panel; more tokens share a K tile that is unpacked to bytes.

template <class Bits, int kQuad, int M, Fetch kFetch>
inline __attribute__((always_inline)) void add_quad(const Planes& planes, const std::uint8_t* x,
                                                    std::int64_t stride, __m512i (&even)[M][4],
                                                    __m512i (&odd)[M][4]) {
  prefetch_share<Bits, kQuad, kFetch>(planes);
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

// Computes a tile of M tokens x 64 outputs. Codes of odd quads are not shifted down in their bytes,
// so that their products are exactly 2^kShift times too large until the end of the group.
template <class Bits, int M, Fetch kFetch>
void bits_tile(const IntPanel& panel, const PanelKTile& k_tile) {
  const std::int64_t stride = panel.input_stride;
  const std::uint8_t* x = panel.inputs + k_tile.token * stride;
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; ++group) {
    const std::int64_t stop = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m512i even[M][4];
    __m512i odd[M][4];
    start_from_zeros(panel, k_tile, group, even);
    fetch_scales(panel, group);
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) odd[m][j] = _mm512_setzero_si512();
    }
    for (; k < stop; k += kStepColumns, x += kStepColumns) {
      const Planes planes = planes_at<Bits>(panel, k);
      add_quad<Bits, 0, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 1, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 2, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 3, M, kFetch>(planes, x, stride, even, odd);
      if (Bits::kGroupsOf16 && stop - k == 16) {
        k = stop, x += 16;
        break;
      }
      add_quad<Bits, 4, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 5, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 6, M, kFetch>(planes, x, stride, even, odd);
      add_quad<Bits, 7, M, kFetch>(planes, x, stride, even, odd);
    }
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        even[m][j] = _mm512_add_epi32(even[m][j], _mm512_srai_epi32(odd[m][j], Bits::kShift));
      }
    }
    fold(
        panel, k_tile, group,
        [&](int output) { return weight_scale<Bits::kGroupsOf16>(panel, group, output); }, even,
        k_tile.sums);
  }
  finish_tile(panel, k_tile, M, 64);
}

constexpr std::int64_t kPackedTokens = 3;
// Fetch::once (Zen 5) was measured only for one token.
constexpr Fetch packed_fetch(Fetch best, int tokens) {
  return tokens > 1 && best == Fetch::once ? Fetch::twice : best;
}
template <class Bits, Fetch kBest>
constexpr KTileKernel kPackedTiles[] = {bits_tile<Bits, 1, packed_fetch(kBest, 1)>,
                                        bits_tile<Bits, 2, packed_fetch(kBest, 2)>,
                                        bits_tile<Bits, 3, packed_fetch(kBest, 3)>};
// Indexed by [best_fetch()][tokens - 1].
template <class Bits>
constexpr const KTileKernel* kPacked[] = {kPackedTiles<Bits, Fetch::twice>,
                                          kPackedTiles<Bits, Fetch::once>,
                                          kPackedTiles<Bits, Fetch::never>};

template <class Bits>
void run_packed(const IntPanel& panel) {
  PanelKTile k_tile;
  k_tile.sums = reinterpret_cast<float*>(panel.scratch);
  clear(k_tile.sums, panel.tokens * 64);
  kPacked<Bits>[static_cast<std::size_t>(panel.fetch)][panel.tokens - 1](panel, k_tile);
}

// Whether the first tile of few tokens, which unpacks weights while it multiplies, also stores them
// as bytes in the K tile for further tiles. Unpacking beforehand is slower: its stores took a
// quarter of the time of a block of 16 tokens.
enum class Unpacked { kept, dropped };
template <class Bits, Unpacked kUnpacked>
struct PackedColumns {
  template <int kQuad, int M>
  static inline __attribute__((always_inline)) void add_quad(const Planes& planes,
                                                             const std::uint8_t* x,
                                                             std::int64_t stride,
                                                             std::uint8_t* codes,
                                                             __m512i (&c)[M][4]) {
    prefetch_share<Bits, kQuad>(planes);
    // Registers unpacked at once: two or one, because for four there are not enough registers.
    constexpr bool kCrowded = Bits::kThirdPlane || kUnpacked == Unpacked::dropped;
    constexpr int kAtOnce = kCrowded && M > 5 ? 1 : 2;
#pragma GCC unroll 4
    for (int j = 0; j < 4; j += kAtOnce) {
      __m512i weights[kAtOnce];
#pragma GCC unroll 2
      for (int i = 0; i < kAtOnce; ++i) {
        const int at = 64 * (j + i);
        weights[i] = Bits::template code<kQuad>(planes.low + at, planes.third + at);
        if constexpr (kQuad % 2 == 1 && Bits::kShift > 0) {
          weights[i] = _mm512_srli_epi16(weights[i], Bits::kShift);
        }
        if constexpr (kUnpacked == Unpacked::kept) {
          _mm512_store_si512(codes + kQuad * 256 + at, weights[i]);
        } else {
          // A compiler barrier, because g++ 12 otherwise unpacks later quads first and spills sums.
          asm volatile("" ::: "memory");
        }
      }
#pragma GCC unroll 6
      for (int m = 0; m < M; ++m) {
        const __m512i input = broadcast_quad(x + m * stride + 4 * kQuad);
#pragma GCC unroll 2
        for (int i = 0; i < kAtOnce; ++i) dot(c[m][j + i], weights[i], input);
      }
    }
  }

  // If only 16 columns remain of 32, the inputs' padding, which is 0, is read too.
  template <int M, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel& panel,
                                                        const PanelKTile& k_tile,
                                                        const WideColumns& tile,
                                                        __m512i (&c)[M][4]) {
    const std::int64_t done = tile.weights - k_tile.codes;  // bytes of the K tile; a column has 64
    std::uint8_t* codes = reinterpret_cast<GroupScratch*>(panel.scratch)->codes + done;
    std::int64_t column = k_tile.first + done / 64;
    const std::int64_t end = column + tile.steps * 16;
    const std::uint8_t* x = tile.inputs;
    for (; column < end; column += kStepColumns, x += kStepColumns, codes += kStepColumns * 64) {
      const Planes planes = planes_at<Bits>(panel, column);
      add_quad<0>(planes, x, tile.stride, codes, c);
      add_quad<1>(planes, x, tile.stride, codes, c);
      add_quad<2>(planes, x, tile.stride, codes, c);
      add_quad<3>(planes, x, tile.stride, codes, c);
      if (Bits::kGroupsOf16 && end - column == 16) break;
      add_quad<4>(planes, x, tile.stride, codes, c);
      add_quad<5>(planes, x, tile.stride, codes, c);
      add_quad<6>(planes, x, tile.stride, codes, c);
      add_quad<7>(planes, x, tile.stride, codes, c);
    }
  }
};

// First tiles of a block of one tile (4 to 6 tokens), and of several (3 to 6 tokens each).
template <class Bits, Start kStart, class Columns = PackedColumns<Bits, Unpacked::dropped>>
constexpr KTileKernel kOnlyTiles[] = {nullptr,
                                      nullptr,
                                      nullptr,
                                      wide_k_tile<4, kStart, Columns>,
                                      wide_k_tile<5, kStart, Columns>,
                                      wide_k_tile<6, kStart, Columns>};
template <class Bits, Start kStart, class Columns = PackedColumns<Bits, Unpacked::kept>>
constexpr KTileKernel kFirstTiles[] = {nullptr,
                                       nullptr,
                                       wide_k_tile<3, kStart, Columns>,
                                       wide_k_tile<4, kStart, Columns>,
                                       wide_k_tile<5, kStart, Columns>,
                                       wide_k_tile<6, kStart, Columns>};

template <class Bits, Start kStart>
void few_tokens_k_tile(const IntPanel& panel, const PanelKTile& k_tile, TokenBlock& block) {
  TileKernels kernels;
  kernels.first =
      panel.tokens <= kWideTokens ? kOnlyTiles<Bits, kStart> : kFirstTiles<Bits, kStart>;
  kernels.wide = kWideTiles<kStart>[static_cast<std::size_t>(panel.fetch)];
  run_tiles<kStart>(panel, k_tile, kernels, block);
}

template <class Bits>
void run_bits(const IntPanel& panel) noexcept {
  if (panel.tokens <= kPackedTokens) {
    run_packed<Bits>(panel);
    return;
  }
  std::uint8_t* const codes = reinterpret_cast<GroupScratch*>(panel.scratch)->codes;
  if (panel.tokens <= kFewTokens) {
    const auto run = panel.zeros == nullptr ? few_tokens_k_tile<Bits, Start::tokens>
                                            : few_tokens_k_tile<Bits, Start::zeros>;
    run_blocks(panel, run, [&](std::int64_t, std::int64_t) { return codes; });
    return;
  }
  run_blocks(panel, run_unsigned_k_tile, [&](std::int64_t first, std::int64_t columns) {
    unpack<Bits>(panel, first, columns, NoZeros{}, codes);
    return codes;
  });
}

struct SuperLanes : Lanes512 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = _mm512_dpbusd_epi32(sum, codes, inputs);
  }
};

struct QuadLanes : Lanes512 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints quad) {
    cpu::dot(sum, codes, quad);
  }
};

MatmulKernels matmuls() {
  MatmulKernels kernels = *level_avx512().matmul;  // of floats
  kernels.isa = Isa::avx512vnni;
  kernels.int_tile = "6x32";  // without groups 12x32
  kernels.int8_rows = run_rows<false>;
  kernels.int8_groups = int8_groups;
  kernels.uint8_rows = run_rows<true>;
  kernels.uint8_groups = uint8_groups;
  kernels.bits4 = run_bits<Bits4>;
  kernels.table4 = run_bits<Table4>;
  kernels.bits3 = run_bits<Bits3>;
  kernels.bits2 = run_bits<Bits2>;
  kernels.super = super_by_count<super_of_bits<SuperLanes, 1, 6>, super_avx512vnni>;
  return kernels;
}

AttentionKernels with_quads() {
  AttentionKernels kernels = *level_avx512().attention;
  kernels.kv[2].scores = int8_scores<QuadProducts<QuadLanes>>;
  return kernels;
}

}  // namespace

const KernelLevel& level_avx512vnni() {
  static const MatmulKernels kMatmuls = matmuls();
  static const AttentionKernels kAttention = with_quads();
  const KernelLevel& avx512 = level_avx512();
  static const KernelLevel kLevel = {&kMatmuls, avx512.rows, &kAttention, avx512.packed,
                                     avx512.delta};
  return kLevel;
}

}  // namespace leq::cpu
