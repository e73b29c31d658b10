// Integer matmuls with 256-bit registers: kernels for few tokens, tiles for many (blocks.h), and
// codes under superblock scales. With many tokens, 8-bit codes are multiplied by vpmaddwd, because
// vpmaddubsw would saturate, and codes of fewer bits by vpmaddubsw.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/blocks.h"
#include "backend/cpu/kernels/x86/lanes_avx2.h"
#include "backend/cpu/kernels/x86/prefetch.h"
#include "backend/cpu/kernels/x86/super_tiles.h"
#include "backend/cpu/kernels/x86/super_words.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

inline __m256i load_bytes(const std::uint8_t* bytes) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Prefetches into L2 the panel that this thread will probably multiply next. Prefetches are spread
// over the passes of the first tokens over this panel, because memory was idle in later passes when
// all prefetches were in the first pass.
class NextPanel {
 public:
  NextPanel(const IntPanel& panel, std::int64_t token) {
    const bool fetches = token == 0 && panel.next_codes != nullptr;
    line_ = fetches ? panel.next_codes : panel.codes;
    step_ = fetches ? 64 : 0;
    end_ = line_ + (fetches ? panel.next_bytes : 1);
  }
  void fetch(int lines) {
    for (int line = 0; line < lines && line_ < end_; ++line, line_ += step_) {
      _mm_prefetch(reinterpret_cast<const char*>(line_), _MM_HINT_T1);
    }
  }

 private:
  const std::uint8_t* line_;
  const std::uint8_t* end_;
  // Bytes between prefetches: 64, or 0 to prefetch the same line again. It is not a constant,
  // because g++ 12 would then unroll the loop, which makes 4-bit weights 10 % slower for one token.
  std::int64_t step_;
};

inline int load_quad(const std::uint8_t* codes) {
  int quad;
  __builtin_memcpy(&quad, codes, sizeof quad);
  return quad;
}

// Start values of the sums of a group of unsigned codes, for 8 outputs of one token:
// -zero point * the sum of the token's codes.
inline __m256i unsigned_start(const IntPanel& panel, std::int64_t token, std::int64_t output,
                              std::int64_t group) {
  const int sum = panel.token_sums[token * panel.token_sum_stride + group];
  if (panel.zeros == nullptr) return _mm256_set1_epi32(-panel.zero * sum);
  const std::uint8_t* zeros = panel.zeros + group * panel.zero_stride + output;
  const __m256i wide =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
  return _mm256_mullo_epi32(wide, _mm256_set1_epi32(-sum));
}

// y = fma(f, weight scale * token scale, bias) for 8 outputs of one token.
inline void finish(const IntPanel& panel, std::int64_t token, std::int64_t output, __m256 f) {
  __m256 scale = _mm256_set1_ps(1.0f);
  if (panel.groups_a_token_scale == 0) {
    scale = _mm256_set1_ps(panel.token_scales[token * panel.token_scale_stride]);
  }
  if (panel.row_scales != nullptr) {
    scale = _mm256_mul_ps(scale, _mm256_loadu_ps(panel.row_scales + output));
  }
  f = panel.bias != nullptr ? _mm256_fmadd_ps(f, scale, _mm256_loadu_ps(panel.bias + output))
                            : _mm256_mul_ps(f, scale);
  _mm256_storeu_ps(panel.y + token * panel.y_stride + output, f);
}

// Weight scale * token scale of a group for 8 outputs; a side without group scales counts as 1.
inline __m256 group_scale(const IntPanel& panel, std::int64_t token, std::int64_t output,
                          std::int64_t group) {
  __m256 scale = _mm256_set1_ps(1.0f);
  if (panel.groups_a_token_scale != 0) {
    scale = _mm256_set1_ps(
        panel.token_scales[token * panel.token_scale_stride + group / panel.groups_a_token_scale]);
  }
  if (panel.group_scales == nullptr) return scale;
  const __m256 wide = Lanes256::load_scales(panel, group * 64 + output);
  return _mm256_mul_ps(_mm256_mul_ps(wide, _mm256_set1_ps(panel.scale_mul)), scale);
}

// 4-, 3- and 2-bit group-scaled weights times int8 activations. vpmaddubsw is exact here: a pair of
// products is at most 2 * 15 * 127 = 3,810, so that 8 pairs (32 columns) fit into 16 bits.

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
    fetch_scales(panel, group);
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
void run_bits(const IntPanel& panel) noexcept {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) two_tokens<kBits>(panel, token);
  if (token == panel.tokens) return;
  // Fetch::once alternates between both caches too; it was measured on Zen 5 as well.
  (panel.fetch == Fetch::never ? one_token<kBits, Fetch::never>
                               : one_token<kBits, Fetch::twice>)(panel, token);
}

// 4-bit codes with a table. Numbers of up to 127 leave no room for sums in 16 bits, but a pair of
// |input| * (number with the sign of the input) fits, at most 2 * 127 * 127.

// sum += the products of numbers and four columns of inputs. In assembly, as add_pairs.
inline __attribute__((always_inline)) void add_numbers(__m256i& sum, __m256i codes, __m256i table,
                                                       __m256i input, __m256i size) {
  const __m256i ones = _mm256_set1_epi16(1);
  asm volatile(
      "vpshufb %[codes], %[table], %[codes]\n"
      "vpsignb %[input], %[codes], %[codes]\n"
      "vpmaddubsw %[codes], %[size], %[codes]\n"
      "vpmaddwd %[ones], %[codes], %[codes]\n"
      "vpaddd %[codes], %[sum], %[sum]\n"
      : [sum] "+x"(sum), [codes] "+x"(codes)
      : [table] "x"(table), [input] "x"(input), [size] "x"(size), [ones] "x"(ones));
}

// Adds quad kQuad of 32 columns, for M tokens x 8 V outputs; if kSmall, to sums in 16 bits.
template <bool kSmall, int kQuad, Fetch kFetch, int M, int V>
inline __attribute__((always_inline)) void add_table_quad(const std::uint8_t* codes, __m256i table,
                                                          const std::uint8_t* x,
                                                          std::int64_t stride, __m256i (&c)[M][V]) {
  __m256i input[M], size[M];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
    input[m] = _mm256_set1_epi32(load_quad(x + m * stride + 4 * kQuad));
    size[m] = _mm256_abs_epi8(input[m]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const Planes line{codes + 32 * v, nullptr};
    if constexpr (kQuad % 2 == 0 && M == 1) {
      if (v % 2 == 0) fetch_ahead<kFetch>(line.low + kQuad / 2 * 256);
    }
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      if constexpr (kSmall) {
        add_pairs(c[m][v], _mm256_shuffle_epi8(table, codes_of<4, kQuad>(line)), input[m]);
      } else {
        add_numbers(c[m][v], codes_of<4, kQuad>(line), table, input[m], size[m]);
      }
    }
  }
}

// Adds 16 columns.
template <bool kSmall, Fetch kFetch, int M, int V>
inline __attribute__((always_inline)) void add_table_half(const std::uint8_t* codes, __m256i table,
                                                          const std::uint8_t* x,
                                                          std::int64_t stride, __m256i (&c)[M][V]) {
  __m256i narrow[M][V];
  for (int i = 0; kSmall && i < M * V; ++i) narrow[i / V][i % V] = _mm256_setzero_si256();
  auto& sums = kSmall ? narrow : c;
  add_table_quad<kSmall, 0, kFetch>(codes, table, x, stride, sums);
  add_table_quad<kSmall, 1, kFetch>(codes, table, x, stride, sums);
  add_table_quad<kSmall, 2, kFetch>(codes, table, x, stride, sums);
  add_table_quad<kSmall, 3, kFetch>(codes, table, x, stride, sums);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int i = 0; kSmall && i < M * V; ++i) {
    __m256i& sum = c[i / V][i % V];
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow[i / V][i % V], ones));
  }
}

// Computes M tokens x all 64 outputs, 8 V at a time. kSmall: the table's unsigned bytes are at most
// 24, so that four pairs of products fit into 16 bits; otherwise they are made signed.
template <bool kSmall, int M, int V, Fetch kFetch>
void table_tokens(const IntPanel& panel, std::int64_t token) {
  NextPanel next(panel, M == 1 ? 1 : token);
  const __m256i zero = _mm256_set1_epi8(static_cast<char>(kSmall ? 0 : panel.zero));
  const __m256i table = _mm256_sub_epi8(load_bytes(panel.table), zero);
  for (std::int64_t output = 0; output < 64; output += 8 * V) {
    __m256 f[M][V];
    for (int i = 0; i < M * V; ++i) f[i / V][i % V] = _mm256_setzero_ps();
    std::int64_t group = 0;
    for (std::int64_t k = 0; k < panel.columns; k += panel.group, ++group) {
      const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
      if constexpr (M == 1) fetch_scales(panel, group);
      __m256i c[M][V];
      for (int i = 0; i < M * V; ++i) {
        c[i / V][i % V] = kSmall ? unsigned_start(panel, token + i / V, output + 8 * (i % V), group)
                                 : _mm256_setzero_si256();
      }
      for (std::int64_t at = k; at < last; at += 16) {
        const std::uint8_t* codes = panel.codes + at * 32 + output * 4;
        const std::uint8_t* x = panel.inputs + token * panel.input_stride + at;
        if constexpr (M > 1) next.fetch(V);
        add_table_half<kSmall, kFetch>(codes, table, x, panel.input_stride, c);
      }
      for (int i = 0; i < M * V; ++i) {
        const int m = i / V, v = i % V;
        f[m][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(c[m][v]),
                                  group_scale(panel, token + m, output + 8 * v, group), f[m][v]);
      }
    }
    for (int i = 0; i < M * V; ++i) {
      finish(panel, token + i / V, output + 8 * (i % V), f[i / V][i % V]);
    }
  }
}

template <bool kSmall>
void run_tables(const IntPanel& panel) {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) {
    table_tokens<kSmall, 2, 2, Fetch::never>(panel, token);
  }
  if (token == panel.tokens) return;
  (panel.fetch == Fetch::never ? table_tokens<kSmall, 1, 8, Fetch::never>
                               : table_tokens<kSmall, 1, 8, Fetch::twice>)(panel, token);
}

void run_table(const IntPanel& panel) noexcept {
  (panel.zero <= kSmallTableZero ? run_tables<true> : run_tables<false>)(panel);
}

// int8 and uint8 weights times int8 activations. Both sides are widened to 16 bits and multiplied
// by vpmaddwd, because sums of vpmaddubsw would saturate. The exception is one token with signed
// codes, where vpmaddubsw is exact (add_magnitudes).

// Adds neighbouring int32 pairs of both registers, in order; the result has eight outputs.
inline __m256i join_pairs(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0b11011000);
}

// int32 sums over columns [first, last) for M tokens x L lines of 16 outputs, without the start
// values. sums is [M][L][2], each register with 8 outputs.
template <bool kUnsigned, int M, int L>
inline __attribute__((always_inline)) void sum_columns(const IntPanel& panel, std::int64_t token,
                                                       std::int64_t output, std::int64_t first,
                                                       std::int64_t last, NextPanel& next,
                                                       __m256i (&sums)[M][L][2]) {
  __m256i c[M][L][4];
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int i = 0; i < 4 * L; ++i) c[m][i / 4][i % 4] = _mm256_setzero_si256();
  }
  const std::uint8_t* w = panel.codes + first * 64 + output * 4;
  const std::uint8_t* x = panel.inputs + token * panel.input_stride + first;
  for (std::int64_t k = first; k < last; k += 4, w += 256, x += 4) {
    next.fetch(L);
    __m256i inputs[M];
#pragma GCC unroll 3
    for (int m = 0; m < M; ++m) {
      const __m128i quad = _mm_set1_epi32(load_quad(x + m * panel.input_stride));
      inputs[m] = kUnsigned ? _mm256_cvtepi8_epi16(quad) : _mm256_cvtepu8_epi16(quad);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4 * L; ++i) {
      const __m128i codes = _mm_load_si128(reinterpret_cast<const __m128i*>(w + 16 * i));
      const __m256i weights = kUnsigned ? _mm256_cvtepu8_epi16(codes) : _mm256_cvtepi8_epi16(codes);
#pragma GCC unroll 3
      for (int m = 0; m < M; ++m) {
        __m256i& sum = c[m][i / 4][i % 4];
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights, inputs[m]));
      }
    }
  }
#pragma GCC unroll 3
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 2
    for (int l = 0; l < L; ++l) {
      sums[m][l][0] = join_pairs(c[m][l][0], c[m][l][1]);
      sums[m][l][1] = join_pairs(c[m][l][2], c[m][l][3]);
    }
  }
}

// Adds four columns of unsigned codes; a mask widens the even bytes and a shift the odd bytes.
inline __attribute__((always_inline)) void add_widened(const std::uint8_t* w, __m256i quad,
                                                       __m256i (&sums)[8]) {
  const __m256i low = _mm256_set1_epi16(0xff);
  const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(quad, 8), 8);
  const __m256i x_odd = _mm256_srai_epi16(quad, 8);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m256i codes = load_bytes(w + 32 * i);
    const __m256i even = _mm256_and_si256(codes, low), odd = _mm256_srli_epi16(codes, 8);
    sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(even, x_even));
    sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(odd, x_odd));
  }
}

// Adds four columns of signed codes: magnitudes times inputs with the codes' signs. This is exact
// for codes of -128 too, because a pair is at most 2 * 128 * 127 = 32,512.
inline __attribute__((always_inline)) void add_magnitudes(const std::uint8_t* w, __m256i quad,
                                                          __m256i (&sums)[8]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const __m256i codes = load_bytes(w + 32 * i);
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(quad, codes));
    sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
  }
}

// int32 sums over columns [first, last) for one token and all 64 outputs, which are read in memory
// order. Each register of sums has eight outputs.
template <bool kUnsigned, Fetch kFetch>
inline __attribute__((always_inline)) void sum_all_outputs(const IntPanel& panel,
                                                           std::int64_t token, std::int64_t first,
                                                           std::int64_t last, __m256i (&sums)[8]) {
#pragma GCC unroll 8
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const std::uint8_t* w = panel.codes + first * 64;
  const std::uint8_t* x = panel.inputs + token * panel.input_stride + first;
  for (std::int64_t k = first; k < last; k += 4, w += 256, x += 4) {
    const __m256i quad = _mm256_set1_epi32(load_quad(x));
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line) fetch_ahead<kFetch>(w + 64 * line);
    if constexpr (kUnsigned) {
      add_widened(w, quad, sums);
    } else {
      add_magnitudes(w, _mm256_xor_si256(quad, _mm256_set1_epi8(-128)), sums);
    }
  }
}

// -128 times the sums of 8 outputs' codes, which cancels the offset of the inputs.
inline __m256i start_value(__m256i sums) {
  return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sums, 7));
}
inline __m256i row_start(const IntPanel& panel, std::int64_t output) {
  const std::int32_t* sums = panel.row_sums + output;
  return start_value(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums)));
}
inline __m256i group_start(const IntPanel& panel, std::int64_t group, std::int64_t output) {
  const std::int16_t* sums = panel.group_sums + group * 64 + output;
  return start_value(
      _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sums))));
}

template <bool kUnsigned, Fetch kFetch>
void row_of_one(const IntPanel& panel, std::int64_t token) {
  __m256i sums[8];
  sum_all_outputs<kUnsigned, kFetch>(panel, token, 0, panel.columns, sums);
  for (int i = 0; i < 8; ++i) {
    if constexpr (kUnsigned) {
      sums[i] = _mm256_add_epi32(sums[i], unsigned_start(panel, token, 8 * i, 0));
    }
    finish(panel, token, 8 * i, _mm256_cvtepi32_ps(sums[i]));
  }
}

template <bool kUnsigned, Fetch kFetch>
void groups_of_one(const IntPanel& panel, std::int64_t token) {
  __m256 f[8];
  for (__m256& sum : f) sum = _mm256_setzero_ps();
  std::int64_t group = 0;
  for (std::int64_t k = 0; k < panel.columns; k += panel.group, ++group) {
    const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
    __m256i sums[8];
    fetch_scales(panel, group);
    sum_all_outputs<kUnsigned, kFetch>(panel, token, k, last, sums);
    for (int i = 0; i < 8; ++i) {
      if constexpr (kUnsigned) {
        sums[i] = _mm256_add_epi32(sums[i], unsigned_start(panel, token, 8 * i, group));
      }
      f[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i]), group_scale(panel, token, 8 * i, group),
                             f[i]);
    }
  }
  for (int i = 0; i < 8; ++i) finish(panel, token, 8 * i, f[i]);
}

template <bool kUnsigned, int M, int L>
void row_tile(const IntPanel& panel, std::int64_t token) {
  NextPanel next(panel, token);
  for (std::int64_t output = 0; output < 64; output += 16 * L) {
    __m256i sums[M][L][2];
    sum_columns<kUnsigned, M, L>(panel, token, output, 0, panel.columns, next, sums);
    for (int m = 0; m < M; ++m) {
      for (int i = 0; i < 2 * L; ++i) {
        const std::int64_t n = output + 8 * i;
        const __m256i start =
            kUnsigned ? unsigned_start(panel, token + m, n, 0) : row_start(panel, n);
        const __m256i sum = _mm256_add_epi32(sums[m][i / 2][i % 2], start);
        finish(panel, token + m, n, _mm256_cvtepi32_ps(sum));
      }
    }
  }
}

template <bool kUnsigned, int M, int L>
void group_tile(const IntPanel& panel, std::int64_t token) {
  NextPanel next(panel, token);
  for (std::int64_t output = 0; output < 64; output += 16 * L) {
    __m256 f[M][2 * L];
    for (int m = 0; m < M; ++m) {
      for (int i = 0; i < 2 * L; ++i) f[m][i] = _mm256_setzero_ps();
    }
    std::int64_t group = 0;
    for (std::int64_t k = 0; k < panel.columns; k += panel.group, ++group) {
      const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
      __m256i sums[M][L][2];
      sum_columns<kUnsigned, M, L>(panel, token, output, k, last, next, sums);
      for (int m = 0; m < M; ++m) {
        for (int i = 0; i < 2 * L; ++i) {
          const std::int64_t n = output + 8 * i;
          const __m256i start =
              kUnsigned ? unsigned_start(panel, token + m, n, group) : group_start(panel, group, n);
          const __m256i sum = _mm256_add_epi32(sums[m][i / 2][i % 2], start);
          f[m][i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum),
                                    group_scale(panel, token + m, n, group), f[m][i]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int i = 0; i < 2 * L; ++i) finish(panel, token + m, output + 8 * i, f[m][i]);
    }
  }
}

// One token uses tiles of all outputs, more tokens use tiles of 16: 8 to 12 accumulators.
using TokenTile = void (*)(const IntPanel&, std::int64_t);
template <bool kUnsigned>
constexpr TokenTile kRowOfOne[] = {row_of_one<kUnsigned, Fetch::twice>,
                                   row_of_one<kUnsigned, Fetch::once>,
                                   row_of_one<kUnsigned, Fetch::never>};
template <bool kUnsigned>
constexpr TokenTile kGroupsOfOne[] = {groups_of_one<kUnsigned, Fetch::twice>,
                                      groups_of_one<kUnsigned, Fetch::once>,
                                      groups_of_one<kUnsigned, Fetch::never>};

void run_tiles(const IntPanel& panel, TokenTile one, TokenTile two, TokenTile three) {
  constexpr std::int64_t kTokens = 3;
  for (std::int64_t token = 0; token < panel.tokens; token += kTokens) {
    const std::int64_t left = panel.tokens - token;
    (left == 1 ? one : left == 2 ? two : three)(panel, token);
  }
}
template <bool kUnsigned>
void run_rows(const IntPanel& panel) noexcept {
  run_tiles(panel, kRowOfOne<kUnsigned>[static_cast<std::size_t>(panel.fetch)],
            row_tile<kUnsigned, 2, 1>, row_tile<kUnsigned, 3, 1>);
}
template <bool kUnsigned>
void run_groups(const IntPanel& panel) noexcept {
  run_tiles(panel, kGroupsOfOne<kUnsigned>[static_cast<std::size_t>(panel.fetch)],
            group_tile<kUnsigned, 2, 1>, group_tile<kUnsigned, 3, 1>);
}

// Tiles of six tokens: 12 of 16 registers hold sums.
struct Avx2 {
  using Signed = WordProducts<Lanes256, 6, WideCodes<Lanes256>>;
  using Bytes = WordProducts<Lanes256, 6, WideDifferences<Lanes256>>;
  template <int kBits>
  using Bits = NarrowProducts<Lanes256, 6, kBits>;
  using Table = WordProducts<Lanes256, 6, WideDifferences<Lanes256, true>>;
  using ShortBits4 = ShortProducts<Lanes256, 6, UnpackedCodes<Lanes256, 4>, 32>;
  using SmallTable = ShortProducts<Lanes256, 6, TableCodes<Lanes256>, 16>;
  using HalfTable = ShortProducts<Lanes256, 6, TableCodes<Lanes256, 16>, 16>;
  static constexpr Start kSigned = Start::none;
  static constexpr Start kBytes = Start::none;
};

// Two products of codes under superblock scales, each at most 63 * 127, fit into 16 bits.
struct SuperLanes : Lanes256 {
  static inline __attribute__((always_inline)) void dot(Ints& sum, Ints codes, Ints inputs) {
    sum = add32(sum, products16(_mm256_maddubs_epi16(codes, inputs), repeat16(1)));
  }
};

}  // namespace

const MatmulKernels& few_tokens_avx2() {
  static constexpr MatmulKernels kKernels = {.int8_rows = run_rows<false>,
                                             .int8_groups = run_groups<false>,
                                             .uint8_rows = run_rows<true>,
                                             .uint8_groups = run_groups<true>,
                                             .bits4 = run_bits<4>,
                                             .table4 = run_table,
                                             .bits3 = run_bits<3>,
                                             .bits2 = run_bits<2>};
  return kKernels;
}

MatmulKernels int_matmuls_avx2() noexcept {
  MatmulKernels kernels = block_kernels<Avx2>(Isa::avx2, "6x16");
  kernels.super = super_by_count<super_of_bits<SuperLanes, 1, 3>, SuperWords<Lanes256, 6>::run>;
  return kernels;
}

}  // namespace leq::cpu
