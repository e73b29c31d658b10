// int8 weights times int8 activations where neither side is grouped: one int32 sum for the whole
// row, held in registers from the first column to the last.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_avx512.h"

namespace leq::cpu {
namespace {

// M tokens x 16 J outputs, from `token` and `output` on.
template <int M, int J>
void tile(const IntPanel& panel, std::int64_t token, int output) {
  __m512i c[M][J];
#pragma GCC unroll 4
  for (int j = 0; j < J; ++j) {
    const __m512i start = start_value(_mm512_loadu_si512(panel.row_sums + output + 16 * j));
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m) c[m][j] = start;
  }
  const std::uint8_t* w = panel.codes + output * 4;
  const std::uint8_t* x = panel.inputs + token * panel.input_stride;
  const std::int64_t stride = panel.input_stride;
  for (std::int64_t k = 0; k < panel.columns; k += 16) {
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad, w += 256, x += 4) {
      __m512i weights[J];
#pragma GCC unroll 4
      for (int j = 0; j < J; ++j) {
        weights[j] = _mm512_load_si512(w + 64 * j);
        prefetch(w + 64 * j + kPrefetchBytes);
      }
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m) {
        const __m512i input = broadcast_quad(x + m * stride);
#pragma GCC unroll 4
        for (int j = 0; j < J; ++j) dot(c[m][j], input, weights[j]);
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

using Tile = void (*)(const IntPanel&, std::int64_t, int);
constexpr Tile kWide[] = {nullptr,    tile<1, 4>, tile<2, 4>, tile<3, 4>,
                          tile<4, 4>, tile<5, 4>, tile<6, 4>};
constexpr Tile kTall[] = {nullptr,     nullptr,     nullptr,    nullptr,    nullptr,
                          nullptr,     tile<6, 2>,  tile<7, 2>, tile<8, 2>, tile<9, 2>,
                          tile<10, 2>, tile<11, 2>, tile<12, 2>};

}  // namespace

void int8_rows_avx512vnni(const IntPanel& panel) noexcept {
  if (panel.tokens <= kWideTokens) {
    kWide[panel.tokens](panel, 0, 0);
    return;
  }
  const std::int64_t tiles = (panel.tokens + kTallTokens - 1) / kTallTokens;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = panel.tokens * i / tiles;
    const std::int64_t count = panel.tokens * (i + 1) / tiles - first;
    kTall[count](panel, first, 0);
    kTall[count](panel, first, 32);
  }
}

}  // namespace leq::cpu
