// What matmul_blocks.h looks up once a group: start values and scales of the groups in a K tile.
#pragma once

#include "backend/cpu/matmul/x86/matmul_products.h"

namespace leq::cpu {
namespace {

// Start values of int32 sums. none: 0; weights: -128 * the weights' sums, since inputs are q + 128;
// zero, zeros: -zero point * the inputs' sums, with one zero point or one per output.
enum class Start { none, weights, zero, zeros };
// The sides with group scales. rows: no side, so that one int32 sum is over all columns. A value,
// not a template argument: it is looked at once a group, and each main loop is compiled once.
enum class Scales { rows, weights, tokens, both };

// Start values and scales of the groups in a K tile.
template <class Products>
struct GroupTables {
  static constexpr std::int64_t kGroups = Products::kKTileColumns / 32;
  static constexpr std::int64_t kTokens = Products::kBlockTokens;
  alignas(64) float scales[kGroups][64];         // scales of the weights
  alignas(64) std::int32_t starts[kGroups][64];  // -128 * sums, or -zero points
  // Copied from the inputs' rows, which are far apart. For Start::zero, sums are times -zero.
  alignas(64) float token_scales[kGroups][kTokens];
  alignas(64) std::int32_t token_sums[kGroups][kTokens];
};

template <Start kStart, class Products>
void fill_tables(const IntPanel& panel, const KTile& k_tile, Scales scales,
                 GroupTables<Products>& tables) {
  using L = typename Products::Lanes;
  const std::int64_t first = k_tile.first / panel.group;
  for (std::int64_t k = 0, g = 0; k < k_tile.columns; k += panel.group, ++g) {
    for (int output = 0; output < 64; output += L::kOutputs) {
      if (scales != Scales::tokens) {
        const auto scale = L::from_f16(panel.group_scales + (first + g) * 64 + output);
        L::store_floats(tables.scales[g] + output, L::mul(scale, L::repeat(panel.scale_mul)));
      }
      if constexpr (kStart == Start::weights) {
        const auto sums = L::from_i16(panel.group_sums + (first + g) * 64 + output);
        L::store(tables.starts[g] + output, L::sub32(L::repeat32(0), L::times_128(sums)));
      } else if constexpr (kStart == Start::zeros) {
        const auto zero = L::from_u8(panel.zeros + (first + g) * panel.zero_stride + output);
        L::store(tables.starts[g] + output, L::sub16(L::repeat32(0), zero));
      }
    }
  }
}

template <Start kStart, class Products>
void fill_token_tables(const IntPanel& panel, const KTile& k_tile, Scales scales,
                       GroupTables<Products>& tables) {
  const std::int64_t first = k_tile.first / panel.group;
  const std::int64_t groups = (k_tile.columns + panel.group - 1) / panel.group;
  for (std::int64_t g = 0; g < groups; ++g) {
    if (scales != Scales::weights) {
      const float* scale = panel.token_scales + k_tile.token * panel.token_scale_stride +
                           (first + g) / panel.groups_a_token_scale;
      for (std::int64_t t = 0; t < k_tile.tokens; ++t, scale += panel.token_scale_stride) {
        tables.token_scales[g][t] = *scale;
      }
    }
    if constexpr (kStart == Start::zero || kStart == Start::zeros) {
      const int factor = kStart == Start::zero ? -panel.zero : 1;
      const std::int32_t* sum =
          panel.token_sums + k_tile.token * panel.token_sum_stride + first + g;
      for (std::int64_t t = 0; t < k_tile.tokens; ++t, sum += panel.token_sum_stride) {
        tables.token_sums[g][t] = factor * *sum;
      }
    }
  }
}

// For sums of rows, which have their start values from begin_sums().
template <class Products>
void clear_starts(const KTile& k_tile, GroupTables<Products>& tables) {
  for (std::int32_t& start : tables.starts[0]) start = 0;
  for (std::int64_t t = 0; t < k_tile.tokens; ++t) tables.token_sums[0][t] = 0;
}

}  // namespace
}  // namespace leq::cpu
