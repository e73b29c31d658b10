// 4-, 3- and 2-bit group-scaled weights times int8 activations. vpmaddubsw is exact here: a pair of
// products is at most 2 * 15 * 127 = 3,810, so that 8 of them (32 columns) fit into 16 bits.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx2.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kNarrowColumns = 32;  // columns that 16-bit sums can hold

// Bytes of the panel's planes at one column of one line of outputs.
struct Planes {
  const std::uint8_t* low;
  const std::uint8_t* high;  // 3 bits
};

// Quad kQuad of 32 columns, one code to a byte.
template <int kBits, int kQuad>
inline __attribute__((always_inline)) __m256i codes_of(const Planes& planes) {
  constexpr int kLow = kBits == 3 ? 2 : kBits;
  constexpr int kQuads = 8 / kLow;
  const __m256i bytes = load_bytes(planes.low + kQuad / kQuads * 256);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi16(bytes, kQuad % kQuads * kLow),
                                       _mm256_set1_epi8((1 << kLow) - 1));
  if constexpr (kBits != 3) return low;
  const __m256i bits = load_bytes(planes.high);
  const __m256i third = kQuad < 2 ? _mm256_slli_epi16(bits, kQuad < 2 ? 2 - kQuad : 0)
                                  : _mm256_srli_epi16(bits, kQuad < 2 ? 0 : kQuad - 2);
  return _mm256_or_si256(low, _mm256_and_si256(third, _mm256_set1_epi8(4)));
}

template <int kBits, int kQuad, int M, int V>
inline __attribute__((always_inline)) void add_quad(const Planes& planes, const std::uint8_t* x,
                                                    std::int64_t stride, __m256i (&narrow)[M][V]) {
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const __m256i codes =
        codes_of<kBits, kQuad>({planes.low + 32 * v, planes.high + (kBits == 3 ? 32 * v : 0)});
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      const __m256i input = _mm256_set1_epi32(load_quad(x + m * stride + 4 * kQuad));
      narrow[m][v] = _mm256_add_epi16(narrow[m][v], _mm256_maddubs_epi16(codes, input));
    }
  }
}

// Sums of 32 columns, added to c: M tokens x 8 V outputs. Codes and inputs after the last column
// exist, and the inputs are 0.
template <int kBits, int M, int V>
inline __attribute__((always_inline)) void add_columns(const Planes& planes, const std::uint8_t* x,
                                                       std::int64_t stride, __m256i (&c)[M][V]) {
  __m256i narrow[M][V];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) narrow[m][v] = _mm256_setzero_si256();
  }
  add_quad<kBits, 0>(planes, x, stride, narrow);
  add_quad<kBits, 1>(planes, x, stride, narrow);
  add_quad<kBits, 2>(planes, x, stride, narrow);
  add_quad<kBits, 3>(planes, x, stride, narrow);
  add_quad<kBits, 4>(planes, x, stride, narrow);
  add_quad<kBits, 5>(planes, x, stride, narrow);
  add_quad<kBits, 6>(planes, x, stride, narrow);
  add_quad<kBits, 7>(planes, x, stride, narrow);
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      c[m][v] = _mm256_add_epi32(c[m][v], _mm256_madd_epi16(narrow[m][v], ones));
    }
  }
}

template <int kBits, int M, int V>
void tile(const IntPanel& panel, std::int64_t token) {
  constexpr int kLow = kBits == 3 ? 2 : kBits;
  constexpr bool kOnePass = V == 8;
  NextPanel next(panel, token);
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
        for (int v = 0; v < V; ++v) {
          c[m][v] = unsigned_start(panel, token + m, output + 8 * v, group);
        }
      }
      for (; k < last; k += kNarrowColumns) {
        const Planes planes{panel.codes + k * 8 * kLow + output * 4,
                            panel.high_codes + (kBits == 3 ? k * 8 + output * 4 : 0)};
        if constexpr (kOnePass) {
          fetch_ahead<4 * kLow>(planes.low);
        } else {
          next.fetch(kLow * V / 2);
        }
        add_columns<kBits, M, V>(planes, panel.inputs + token * panel.input_stride + k,
                                 panel.input_stride, c);
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

template <int kBits>
void run(const IntPanel& panel) {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) tile<kBits, 2, 2>(panel, token);
  // In one pass 3 bits are a fifth faster, 2 and 4 slower.
  constexpr int kRegisters = kBits == 3 ? 8 : 4;
  if (token < panel.tokens) tile<kBits, 1, kRegisters>(panel, token);
}

}  // namespace

void bits4_avx2(const IntPanel& panel) noexcept { run<4>(panel); }
void bits3_avx2(const IntPanel& panel) noexcept { run<3>(panel); }
void bits2_avx2(const IntPanel& panel) noexcept { run<2>(panel); }

}  // namespace leq::cpu
