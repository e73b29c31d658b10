// AVX-512's kernels, but bytes are multiplied in quads by vpdpbusd: int8 keys of attention, and
// integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/int8_scores.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/super_tiles.h"
#include "backend/cpu/kernels/x86/tall_tile.h"
#include "backend/cpu/kernels/x86/vnni.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

// Columns of a panel that are multiplied by all tokens of a block before the next columns; a
// multiple of every group. 64 rows of them and the block's inputs remain in L2. With K tiles of
// 512, which remain in L1, tiles of many tokens would load their f32 sums from L2 four times as
// often; the sums of few tokens remain in L1 too.
constexpr std::int64_t kKTileColumns = 2048;
constexpr std::int64_t kFewTokensColumns = 512;
constexpr std::int64_t kKTileGroups = kKTileColumns / 32;  // K tiles of groups of 16 are halved

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
  float* sums = nullptr;                // [M][16 J] f32 sums; a panel's first K tile sets them,
                                        // later K tiles add to them, and the last one finishes them
  const KTileTables* tables = nullptr;
  const std::uint8_t* ahead = nullptr;         // 64 bytes of it are prefetched per 16 columns
  const std::int32_t* token_starts = nullptr;  // [groups][kTallTokens]; see start_from_tokens()
};

// The sides that have group scales.
enum class Scales { weights, tokens, both };

// A compiler barrier for loads and stores. Without it g++ 12 holds a tile's f32 sums in registers
// between groups, so that registers do not suffice for the int32 sums.
inline __attribute__((always_inline)) void memory_barrier() { asm volatile("" ::: "memory"); }

// f = fma(float(c), weight scale * token scale, f) for a tile's accumulators at the end of a group;
// sums [M][16 J]. With many sums all stores are last: the processor's store queue is shorter than a
// tile, and no products start while it is full of stores that wait for their data.
template <int M, int J, Scales kScales, class WeightScale>
inline __attribute__((always_inline)) void add_scaled(const IntPanel& panel,
                                                      const PanelKTile& k_tile, std::int64_t group,
                                                      WeightScale weight_scale,
                                                      const __m512i (&c)[M][J], float* sums) {
  constexpr bool kManySums = M * J > 12;
  const std::int64_t stride = panel.token_scale_stride;
  const float* token = panel.token_scales;
  if constexpr (kScales != Scales::weights) {
    token += k_tile.token * stride + group / panel.groups_a_token_scale;
  }
  __m512 by_weight[J];
  if constexpr (kScales != Scales::tokens) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) by_weight[j] = weight_scale(16 * j);
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

// Folds a group with the scales that the panel has; they are looked at once a group, so that each
// main loop is compiled once. weight_scale(output): of 16 outputs of the tile.
template <int M, int J, class WeightScale>
inline __attribute__((always_inline)) void fold(const IntPanel& panel, const PanelKTile& k_tile,
                                                std::int64_t group, WeightScale weight_scale,
                                                const __m512i (&c)[M][J], float* sums) {
  if (panel.groups_a_token_scale == 0) {
    add_scaled<M, J, Scales::weights>(panel, k_tile, group, weight_scale, c, sums);
  } else if (panel.group_scales == nullptr) {
    add_scaled<M, J, Scales::tokens>(panel, k_tile, group, weight_scale, c, sums);
  } else {
    add_scaled<M, J, Scales::both>(panel, k_tile, group, weight_scale, c, sums);
  }
}

// Tiles of matmuls with groups: each group has an int32 sum, which is folded into f32 sums. These
// are in memory between groups, because registers do not suffice for them beside the accumulators.

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
  const std::int64_t most = panel.group < 32 ? kKTileGroups * panel.group : kKTileColumns;
  const std::int64_t columns = panel.tokens <= kFewTokens ? kFewTokensColumns : most;
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
  template <int M, int J, Start kStart>
  static inline __attribute__((always_inline)) void add(const IntPanel& panel,
                                                        const PanelKTile& k_tile,
                                                        const TallColumns& tile,
                                                        __m512i (&c)[M][J]) {
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
                                      k_tile_kernel<4, 4, kStart, Columns>,
                                      k_tile_kernel<5, 4, kStart, Columns>,
                                      k_tile_kernel<6, 4, kStart, Columns>};
template <class Bits, Start kStart, class Columns = PackedColumns<Bits, Unpacked::kept>>
constexpr KTileKernel kFirstTiles[] = {nullptr,
                                       nullptr,
                                       k_tile_kernel<3, 4, kStart, Columns>,
                                       k_tile_kernel<4, 4, kStart, Columns>,
                                       k_tile_kernel<5, 4, kStart, Columns>,
                                       k_tile_kernel<6, 4, kStart, Columns>};

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

// int8 and uint8 weights times int8 activations, if neither side has groups: one int32 sum for the
// whole row, held in registers from the first column to the last.

// Start values: -128 * the weights' sums for signed weights, because inputs are q + 128; for
// unsigned weights -zero point * the inputs' sum.
template <bool kUnsigned, int M, int J>
inline __attribute__((always_inline)) void start(const IntPanel& panel, std::int64_t token,
                                                 int output, __m512i (&c)[M][J]) {
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
    __m512i value;
    if constexpr (kUnsigned) {
      value = zero_points(panel, 0, output + 16 * j);
    } else {
      value = start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) {
      c[m][j] = value;
      if constexpr (kUnsigned) {
        const int sum = panel.token_sums[(token + m) * panel.token_sum_stride];
        c[m][j] = _mm512_mullo_epi32(value, _mm512_set1_epi32(-sum));
      }
    }
  }
}

// Computes a tile of M tokens x 16 J outputs, beginning at `token` and `output`.
template <bool kUnsigned, int M, int J, Fetch kFetch = Fetch::twice>
void tile(const IntPanel& panel, std::int64_t token, int output) {
  __m512i c[M][J];
  start<kUnsigned>(panel, token, output, c);
  const std::uint8_t* w = panel.codes + output * 4;
  const std::uint8_t* x = panel.inputs + token * panel.input_stride;
  const std::int64_t stride = panel.input_stride;
  for (std::int64_t k = 0; k < panel.columns; k += 16) {
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
      __m512i weights[J];
      load_weights<kFetch>(w, weights);
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
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int j = 0; j < J; ++j) {
      finish(panel, token + m, output + 16 * j, _mm512_cvtepi32_ps(c[m][j]));
    }
  }
}

// Computes a tile of M tokens x 32 outputs of signed weights.
template <int M>
void tall_tile(const IntPanel& panel, std::int64_t token, int output, const std::uint8_t* ahead) {
  fetch_results<M>(panel, token, output);
  alignas(64) std::int32_t starts[32];
  for (int j = 0; j < 32; j += 16) {
    _mm512_store_si512(starts + j, start_value(_mm512_loadu_si512(panel.row_sums + output + j)));
  }
  const TallColumns columns = {panel.codes + output * 4, panel.inputs + token * panel.input_stride,
                               panel.input_stride, panel.columns / 16, ahead};
  __m512i c[M][2];
  tall_sums<M, TallStart::outputs>(columns, starts, c);
#pragma GCC unroll 12
  for (int m = 0; m < M; ++m) {
    finish(panel, token + m, output, _mm512_cvtepi32_ps(c[m][0]));
    finish(panel, token + m, output + 16, _mm512_cvtepi32_ps(c[m][1]));
  }
}

using RowTile = void (*)(const IntPanel&, std::int64_t, int);
template <bool kUnsigned, Fetch kBest>
constexpr RowTile kWideOf[] = {tile<kUnsigned, 1, 4, wide_tile_fetch(kBest, 1)>,
                               tile<kUnsigned, 2, 4, wide_tile_fetch(kBest, 2)>,
                               tile<kUnsigned, 3, 4, wide_tile_fetch(kBest, 3)>,
                               tile<kUnsigned, 4, 4, wide_tile_fetch(kBest, 4)>,
                               tile<kUnsigned, 5, 4, wide_tile_fetch(kBest, 5)>,
                               tile<kUnsigned, 6, 4, wide_tile_fetch(kBest, 6)>};
// Indexed by [best_fetch()][tokens - 1].
template <bool kUnsigned>
constexpr const RowTile* kWide[] = {kWideOf<kUnsigned, Fetch::twice>,
                                    kWideOf<kUnsigned, Fetch::once>,
                                    kWideOf<kUnsigned, Fetch::never>};
using TallTile = void (*)(const IntPanel&, std::int64_t, int, const std::uint8_t*);
template <int M>
void unsigned_tall_tile(const IntPanel& panel, std::int64_t token, int output,
                        const std::uint8_t*) {
  tile<true, M, 2>(panel, token, output);
}
constexpr TallTile kTall[2][4] = {{tall_tile<9>, tall_tile<10>, tall_tile<11>, tall_tile<12>},
                                  {unsigned_tall_tile<9>, unsigned_tall_tile<10>,
                                   unsigned_tall_tile<11>, unsigned_tall_tile<12>}};

template <bool kUnsigned>
void run_rows(const IntPanel& panel) noexcept {
  const bool wide = panel.tokens <= kFewTokens;
  const std::int64_t most = wide ? kWideTokens : kTallTokens;
  const std::int64_t tiles = (panel.tokens + most - 1) / most;
  const auto fetch = static_cast<std::size_t>(panel.fetch);
  NextPanel next = next_panel(panel);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = panel.tokens * i / tiles;
    const std::int64_t count = panel.tokens * (i + 1) / tiles - first;
    if (wide) {
      kWide<kUnsigned>[fetch][count - 1](panel, first, 0);
      continue;
    }
    const TallTile tall = kTall[kUnsigned][count - 9];
    tall(panel, first, 0, take_ahead(next, panel.columns * 4));
    tall(panel, first, 32, take_ahead(next, panel.columns * 4));
  }
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
