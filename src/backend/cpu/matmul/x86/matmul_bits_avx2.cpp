// 4-, 3- and 2-bit group-scaled weights times int8 activations. vpmaddubsw is exact here: a pair of
// products is at most 2 * 15 * 127 = 3,810, so that 8 pairs (32 columns) fit into 16 bits.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx2.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kNarrowColumns = 32;  // columns that 16-bit sums can add

// Addresses of a panel's codes at one column, for 8 consecutive outputs, in the panel's planes.
struct Planes {
  const std::uint8_t* low;
  const std::uint8_t* high;  // 3 bits: the plane of third bits
};

// Unpacks quad kQuad of 32 columns to one code per byte.
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

// Adds 32 columns to c, for M tokens x 8 V outputs. Codes and inputs are padded after the last
// column, and padding inputs are 0.
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

// Computes tiles of two tokens x 16 outputs.
template <int kBits>
void two_tokens(const IntPanel& panel, std::int64_t token) {
  constexpr int M = 2, V = 2;
  constexpr int kLow = kBits == 3 ? 2 : kBits;
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
        next.fetch(kLow * V / 2);
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

// sum += pairs of products of u8 codes and s8 inputs. In assembly, because g++ 12 moves and spills
// the sums around the intrinsics. It is volatile, so that prefetches remain between these
// instructions, since prefetches that are issued together wait for each other.
inline __attribute__((always_inline)) void add_pairs(__m256i& sum, __m256i codes, __m256i input) {
  asm volatile(
      "vpmaddubsw %[input], %[codes], %[codes]\n"
      "vpaddw %[codes], %[sum], %[sum]\n"
      : [sum] "+x"(sum), [codes] "+x"(codes)
      : [input] "x"(input));
}

// Prefetches line kStep / 2 of 4 into L2 (even kStep) or L1 (odd), at the distances of fetch_ahead.
template <int kStep>
inline __attribute__((always_inline)) void fetch_step(const std::uint8_t* row) {
  constexpr int kLine = kStep / 2 * 64;
  if constexpr (kStep % 2 == 0) {
    asm volatile("prefetcht1 %0" : : "m"(row[kFarBytes + kLine]));
  } else {
    asm volatile("prefetcht0 %0" : : "m"(row[kNearBytes + kLine]));
  }
}

// Adds quads kQuad and kQuad + 1 of 32 columns, for one token, to the sums from register kFirst on.
template <int kBits, int kQuad, Fetch kFetch, int kFirst = 0>
inline __attribute__((always_inline)) void add_two_quads(const Planes& planes, __m256i first,
                                                         __m256i second, __m256i (&narrow)[8]) {
  if constexpr (kFirst < 8) {
    constexpr int kLow = kBits == 3 ? 2 : kBits;
    constexpr int kPairs = 4 / kLow;  // pairs of quads in a byte
    constexpr int kStep = kFirst + kQuad / 2 % kPairs * 8;
    const Planes line{planes.low + 32 * kFirst, planes.high + (kBits == 3 ? 32 * kFirst : 0)};
    add_pairs(narrow[kFirst], codes_of<kBits, kQuad>(line), first);
    if constexpr (kFetch != Fetch::never && kStep % kPairs == 0) {
      fetch_step<kStep / kPairs>(planes.low + kQuad / 2 / kPairs * 256);
    }
    add_pairs(narrow[kFirst], codes_of<kBits, kQuad + 1>(line), second);
    add_two_quads<kBits, kQuad, kFetch, kFirst + 1>(planes, first, second, narrow);
  }
}
template <int kBits, int kQuad, Fetch kFetch>
inline __attribute__((always_inline)) void add_two_quads(const Planes& planes,
                                                         const std::uint8_t* x,
                                                         __m256i (&narrow)[8]) {
  add_two_quads<kBits, kQuad, kFetch>(planes, _mm256_set1_epi32(load_quad(x + 4 * kQuad)),
                                      _mm256_set1_epi32(load_quad(x + 4 * kQuad + 4)), narrow);
}

// Computes one token x all 64 outputs; the panel is read once, in memory order.
template <int kBits, Fetch kFetch>
void one_token(const IntPanel& panel, std::int64_t token) {
  constexpr int kLow = kBits == 3 ? 2 : kBits;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 f[8];
  for (__m256& sum : f) sum = _mm256_setzero_ps();
  const std::uint8_t* x = panel.inputs + token * panel.input_stride;
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; ++group) {
    const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m256i c[8];
    for (int v = 0; v < 8; ++v) c[v] = unsigned_start(panel, token, 8 * v, group);
    fetch_scales(panel.group_scales, group);
    for (; k < last; k += kNarrowColumns) {
      const Planes planes{panel.codes + k * 8 * kLow, panel.high_codes + (kBits == 3 ? k * 8 : 0)};
      __m256i narrow[8];
#pragma GCC unroll 8
      for (__m256i& sum : narrow) sum = _mm256_setzero_si256();
      add_two_quads<kBits, 0, kFetch>(planes, x + k, narrow);
      add_two_quads<kBits, 2, kFetch>(planes, x + k, narrow);
      add_two_quads<kBits, 4, kFetch>(planes, x + k, narrow);
      add_two_quads<kBits, 6, kFetch>(planes, x + k, narrow);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        c[v] = _mm256_add_epi32(c[v], _mm256_madd_epi16(narrow[v], ones));
      }
    }
    k = last;
    for (int v = 0; v < 8; ++v) {
      f[v] =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(c[v]), group_scale(panel, token, 8 * v, group), f[v]);
    }
  }
  for (int v = 0; v < 8; ++v) finish(panel, token, 8 * v, f[v]);
}

template <int kBits>
void run(const IntPanel& panel) {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) two_tokens<kBits>(panel, token);
  if (token == panel.tokens) return;
  // Fetch::once alternates between both caches too; it was measured on Zen 5 as well.
  (panel.fetch == Fetch::never ? one_token<kBits, Fetch::never>
                               : one_token<kBits, Fetch::twice>)(panel, token);
}

}  // namespace

void bits4_avx2(const IntPanel& panel) noexcept { run<4>(panel); }
void bits3_avx2(const IntPanel& panel) noexcept { run<3>(panel); }
void bits2_avx2(const IntPanel& panel) noexcept { run<2>(panel); }

}  // namespace leq::cpu
