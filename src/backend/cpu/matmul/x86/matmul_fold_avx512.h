// The end of a group in a tile of matmuls with groups: its int32 sums are scaled and added to f32
// sums.
#pragma once

#include "backend/cpu/matmul/x86/matmul_avx512.h"

namespace leq::cpu {

// Columns of a panel that are multiplied by all tokens of a block before the next columns; a
// multiple of every group. 64 rows of them and the block's inputs remain in L2. With K tiles of
// 512, which remain in L1, tiles of many tokens would load their f32 sums from L2 four times as
// often; the sums of few tokens remain in L1 too.
inline constexpr std::int64_t kKTileColumns = 2048;
inline constexpr std::int64_t kFewTokensColumns = 512;
inline constexpr std::int64_t kSmallestGroup = 32;
inline constexpr std::int64_t kKTileGroups = kKTileColumns / kSmallestGroup;

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

namespace {

inline __attribute__((always_inline)) __m512 weight_scale(const IntPanel& panel, std::int64_t group,
                                                          int output) {
  const std::uint16_t* scales = panel.group_scales + group * 64 + output;
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(panel.scale_mul));
}

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

}  // namespace
}  // namespace leq::cpu
