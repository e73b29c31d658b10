// int8 and uint8 weights times int8 activations, if neither side has groups: one int32 sum for the
// whole row, held in registers from the first column to the last.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx512.h"
#include "backend/cpu/matmul/x86/tall_tile_avx512.h"

namespace leq::cpu {
namespace {

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

using Tile = void (*)(const IntPanel&, std::int64_t, int);
template <bool kUnsigned, Fetch kBest>
constexpr Tile kWideOf[] = {tile<kUnsigned, 1, 4, wide_tile_fetch(kBest, 1)>,
                            tile<kUnsigned, 2, 4, wide_tile_fetch(kBest, 2)>,
                            tile<kUnsigned, 3, 4, wide_tile_fetch(kBest, 3)>,
                            tile<kUnsigned, 4, 4, wide_tile_fetch(kBest, 4)>,
                            tile<kUnsigned, 5, 4, wide_tile_fetch(kBest, 5)>,
                            tile<kUnsigned, 6, 4, wide_tile_fetch(kBest, 6)>};
// Indexed by [best_fetch()][tokens - 1].
template <bool kUnsigned>
constexpr const Tile* kWide[] = {kWideOf<kUnsigned, Fetch::twice>, kWideOf<kUnsigned, Fetch::once>,
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
void run(const IntPanel& panel) {
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

}  // namespace

void int8_rows_avx512vnni(const IntPanel& panel) noexcept { run<false>(panel); }
void uint8_rows_avx512vnni(const IntPanel& panel) noexcept { run<true>(panel); }

}  // namespace leq::cpu
