// 4-bit group-scaled weights times int8 activations. vpmaddubsw is exact here: a pair of products
// is at most 2 * 15 * 127 = 3,810, so that 8 of them (32 columns) fit into 16 bits.
#include "backend/cpu/matmul_kernel_tables.h"
#include "backend/cpu/x86/matmul_avx2.h"

namespace leq::cpu {
namespace {

constexpr int kPrefetchBytes = 2048;
constexpr std::int64_t kNarrowColumns = 32;  // columns that 16-bit sums can hold

// Sums of at most kNarrowColumns columns, added to c: M tokens x 8 V outputs.
template <int M, int V>
inline __attribute__((always_inline)) void add_columns(const std::uint8_t* w, const std::uint8_t* x,
                                                       std::int64_t stride, std::int64_t columns,
                                                       __m256i (&c)[M][V]) {
  const __m256i low_mask = _mm256_set1_epi8(15);
  __m256i narrow[M][V];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) narrow[m][v] = _mm256_setzero_si256();
  }
  for (std::int64_t k = 0; k < columns; k += 8, w += 256, x += 8) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const __m256i both = load_bytes(w + 32 * v);
      const __m256i low = _mm256_and_si256(both, low_mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask);
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) {
        const __m256i first = _mm256_set1_epi32(load_quad(x + m * stride));
        const __m256i second = _mm256_set1_epi32(load_quad(x + m * stride + 4));
        narrow[m][v] = _mm256_add_epi16(narrow[m][v], _mm256_maddubs_epi16(low, first));
        narrow[m][v] = _mm256_add_epi16(narrow[m][v], _mm256_maddubs_epi16(high, second));
      }
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      c[m][v] = _mm256_add_epi32(c[m][v], _mm256_madd_epi16(narrow[m][v], ones));
    }
  }
}

template <int M, int V>
void tile(const IntPanel& panel, std::int64_t token) {
  for (std::int64_t output = 0; output < 64; output += 8 * V) {
    __m256 f[M][V];
    for (int m = 0; m < M; ++m) {
      for (int v = 0; v < V; ++v) f[m][v] = _mm256_setzero_ps();
    }
    std::int64_t group = 0;
    for (std::int64_t k = 0; k < panel.columns; ++group) {
      const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
      __m256i c[M][V];
      for (int m = 0; m < M; ++m) {
        const int sum = panel.token_sums[(token + m) * panel.token_sum_stride + group];
        for (int v = 0; v < V; ++v) c[m][v] = _mm256_set1_epi32(-8 * sum);
      }
      for (; k < last; k += kNarrowColumns) {
        const std::uint8_t* w = panel.codes + k * 32 + output * 4;
        if (output == 0) {
          for (int line = 0; line < 1024; line += 64) prefetch(w + line + kPrefetchBytes);
        }
        add_columns<M, V>(w, panel.inputs + token * panel.input_stride + k, panel.input_stride,
                          last - k < kNarrowColumns ? last - k : kNarrowColumns, c);
      }
      k = last;
      for (int m = 0; m < M; ++m) {
        for (int v = 0; v < V; ++v) {
          f[m][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(c[m][v]),
                                    group_scale(panel, token + m, output + 8 * v, group), f[m][v]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int v = 0; v < V; ++v) finish(panel, token + m, output + 8 * v, f[m][v]);
    }
  }
}

}  // namespace

void int4_groups_avx2(const IntPanel& panel) noexcept {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) tile<2, 2>(panel, token);
  if (token < panel.tokens) tile<1, 4>(panel, token);
}

}  // namespace leq::cpu
