// int8 and uint8 weights times int8 activations. Both sides are widened to 16 bits and multiplied
// by vpmaddwd, because sums of vpmaddubsw would saturate. The exception is one token with signed
// codes, where vpmaddubsw is exact (add_magnitudes).
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_avx2.h"

namespace leq::cpu {
namespace {

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
    fetch_scales(panel.group_scales, group);
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
using Tile = void (*)(const IntPanel&, std::int64_t);
template <bool kUnsigned>
constexpr Tile kRowOfOne[] = {row_of_one<kUnsigned, Fetch::twice>,
                              row_of_one<kUnsigned, Fetch::once>,
                              row_of_one<kUnsigned, Fetch::never>};
template <bool kUnsigned>
constexpr Tile kGroupsOfOne[] = {groups_of_one<kUnsigned, Fetch::twice>,
                                 groups_of_one<kUnsigned, Fetch::once>,
                                 groups_of_one<kUnsigned, Fetch::never>};

void run(const IntPanel& panel, Tile one, Tile two, Tile three) {
  constexpr std::int64_t kTokens = 3;
  for (std::int64_t token = 0; token < panel.tokens; token += kTokens) {
    const std::int64_t left = panel.tokens - token;
    (left == 1 ? one : left == 2 ? two : three)(panel, token);
  }
}
template <bool kUnsigned>
void run_rows(const IntPanel& panel) {
  run(panel, kRowOfOne<kUnsigned>[static_cast<std::size_t>(panel.fetch)], row_tile<kUnsigned, 2, 1>,
      row_tile<kUnsigned, 3, 1>);
}
template <bool kUnsigned>
void run_groups(const IntPanel& panel) {
  run(panel, kGroupsOfOne<kUnsigned>[static_cast<std::size_t>(panel.fetch)],
      group_tile<kUnsigned, 2, 1>, group_tile<kUnsigned, 3, 1>);
}

}  // namespace

void int8_rows_avx2(const IntPanel& panel) noexcept { run_rows<false>(panel); }
void int8_groups_avx2(const IntPanel& panel) noexcept { run_groups<false>(panel); }
void uint8_rows_avx2(const IntPanel& panel) noexcept { run_rows<true>(panel); }
void uint8_groups_avx2(const IntPanel& panel) noexcept { run_groups<true>(panel); }

}  // namespace leq::cpu
