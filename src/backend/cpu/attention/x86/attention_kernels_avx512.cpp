// Attention kernels with 512-bit registers. A register holds one dimension of 16 keys, or 16
// dimensions of one value; up to 6 queries share each load.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/attention/x86/int8_scores_avx512.h"
#include "backend/cpu/attention/x86/prefetcher.h"
#include "backend/cpu/rows/x86/floats_avx512.h"

namespace leq::cpu {
namespace {

__mmask16 low_lanes(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

__m512 load16(const float* x) { return _mm512_loadu_ps(x); }
__m512 load16(const std::uint8_t* x) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
}
__m512 load16(const float* x, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, x); }
__m512 load16(const std::uint16_t* x, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, x));
}
__m512 load16(const std::uint8_t* x, __mmask16 mask) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, x)));
}

// Lines of values are also prefetched into L1, this many lines ahead, because memory is read faster
// with prefetches into both L1 and L2 than into one of them. Usually the memory behind a head's
// part of a page is read next. (8-bit keys are read as four streams and become slower.)
constexpr std::int64_t kLinesNear = 16;

inline __attribute__((always_inline)) void fetch_near(const void* line) {
  _mm_prefetch(static_cast<const char*>(line) + kLinesNear * 64, _MM_HINT_T0);
}

// Scores of key blocks [block, block + B), 16 keys each, for R queries; one fma chain per key.
template <class Key, int R, int B>
void float_blocks(const ScoreTile& tile, int block) noexcept {
  const std::int64_t dims = tile.dims;
  const Key* keys = static_cast<const Key*>(tile.keys) + block * dims * kKeyBlock;
  const float* query[R];
  __m512 sums[R][B];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[r];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) sums[r][b] = _mm512_setzero_ps();
  }
  Prefetcher ahead(tile.ahead, dims);
  for (std::int64_t c = 0; c < dims; ++c) {
    __m512 key[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      key[b] = load16(keys + (b * dims + c) * kKeyBlock);
    }
    ahead.step(c);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 q = _mm512_set1_ps(query[r][c]);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) sums[r][b] = _mm512_fmadd_ps(q, key[b], sums[r][b]);
    }
  }
  const std::int64_t first = std::int64_t{block} * kKeyBlock;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    float* const scores = tile.scores[r] + first;
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) _mm512_storeu_ps(scores + b * kKeyBlock, sums[r][b]);
  }
}

// Int8 codes widened to 16 bits: columns 0 and 2 of a quad, and columns 1 and 3. Shifts widen the
// odd bytes and a mask the even ones, so that nothing saturates.
struct PairProducts {
  static constexpr int most_blocks(int queries) { return queries == 1 ? 1 : queries <= 3 ? 4 : 2; }

  template <int R, int B>
  static inline __attribute__((always_inline)) void add(const std::uint8_t* keys,
                                                        std::int64_t stride,
                                                        const std::int32_t (&quads)[R],
                                                        __m512i (&sums)[R][B]) {
    __m512i even[R], odd[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i quad = _mm512_set1_epi32(quads[r]);
      even[r] = _mm512_srai_epi16(_mm512_slli_epi16(quad, 8), 8);
      odd[r] = _mm512_srai_epi16(quad, 8);
    }
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      const __m512i codes = _mm512_loadu_si512(keys + b * stride);
      const __m512i low = _mm512_and_si512(codes, _mm512_set1_epi16(0xff));
      const __m512i high = _mm512_srli_epi16(codes, 8);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        sums[r][b] = _mm512_add_epi32(sums[r][b], _mm512_madd_epi16(low, even[r]));
        sums[r][b] = _mm512_add_epi32(sums[r][b], _mm512_madd_epi16(high, odd[r]));
      }
    }
  }
};

template <class Key, int R>
void float_rows(const ScoreTile& tile) noexcept {
  int block = tile.first_block;
  const int last_joint = tile.in_order ? block : tile.last_block;
  for (; block + 4 <= last_joint; block += 4) float_blocks<Key, R, 4>(tile, block);
  for (; block + 2 <= last_joint; block += 2) float_blocks<Key, R, 2>(tile, block);
  for (; block < tile.last_block; ++block) float_blocks<Key, R, 1>(tile, block);
}

using ScoreRows = void (*)(const ScoreTile&) noexcept;

template <class Key>
void float_scores(const ScoreTile& tile) noexcept {
  constexpr ScoreRows kRows[kQueryTile] = {float_rows<Key, 1>, float_rows<Key, 2>,
                                           float_rows<Key, 3>, float_rows<Key, 4>,
                                           float_rows<Key, 5>, float_rows<Key, 6>};
  kRows[tile.queries - 1](tile);
}

// Adds to output columns [column, column + 16 D) of R queries; the last register is masked.
template <class Value, int R, int D>
void value_columns(const ValueTile& tile, std::int64_t column, __mmask16 mask) noexcept {
  const std::int64_t dims = tile.dims;
  const Value* values = static_cast<const Value*>(tile.values) + column;
  const float* weights[R];
  __m512 sums[R][D];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    weights[r] = tile.weights[r];
    const float* const out = tile.out[r] + column;
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) {
      sums[r][i] = D == 1 ? load16(out, mask) : load16(out + i * 16);
    }
  }
  // With many queries, f32 values are not prefetched: a page was just widened and is in the cache.
  constexpr bool kFetch = sizeof(Value) < sizeof(float) || R <= 3;
  Prefetcher ahead(share_of(tile.ahead, column, column + 16 * D, dims), tile.last - tile.first);
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const Value* at = values + j * dims;
    ahead.step(j - tile.first);
    __m512 value[D];
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) {
      value[i] = D == 1 ? load16(at, mask) : load16(at + i * 16);
      if (kFetch && tile.near && i * 16 * sizeof(Value) % 64 == 0) fetch_near(at + i * 16);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512 weight = _mm512_set1_ps(weights[r][j]);
#pragma GCC unroll 8
      for (int i = 0; i < D; ++i) sums[r][i] = _mm512_fmadd_ps(weight, value[i], sums[r][i]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    float* const out = tile.out[r] + column;
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) {
      if constexpr (D == 1) {
        _mm512_mask_storeu_ps(out, mask, sums[r][i]);
      } else {
        _mm512_storeu_ps(out + i * 16, sums[r][i]);
      }
    }
  }
}

template <class Value, int R>
void value_rows(const ValueTile& tile) noexcept {
  constexpr __mmask16 kAll = 0xffffu;
  const std::int64_t dims = tile.dims;
  std::int64_t column = 0;
  if constexpr (R <= 3) {  // few chains need eight registers of columns to hide latency
    for (; column + 128 <= dims; column += 128) value_columns<Value, R, 8>(tile, column, kAll);
  }
  for (; column + 64 <= dims; column += 64) value_columns<Value, R, 4>(tile, column, kAll);
  for (; column + 32 <= dims; column += 32) value_columns<Value, R, 2>(tile, column, kAll);
  for (; column < dims; column += 16) {
    value_columns<Value, R, 1>(tile, column, low_lanes(dims - column));
  }
}

template <class Value>
void weighted_values(const ValueTile& tile) noexcept {
  using Rows = void (*)(const ValueTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {value_rows<Value, 1>, value_rows<Value, 2>,
                                      value_rows<Value, 3>, value_rows<Value, 4>,
                                      value_rows<Value, 5>, value_rows<Value, 6>};
  kRows[tile.queries - 1](tile);
}

template <class Number>
void widen(const void* numbers, std::int64_t n, float* out) noexcept {
  const auto* x = static_cast<const Number*>(numbers);
  std::int64_t k = 0;
  for (; k + 16 <= n; k += 16) _mm512_storeu_ps(out + k, load16(x + k));
  if (k < n) {
    const __mmask16 mask = low_lanes(n - k);
    _mm512_mask_storeu_ps(out + k, mask, load16(x + k, mask));
  }
}

float lane_total(const float* lanes) noexcept { return add_lanes(_mm512_loadu_ps(lanes)); }

// A mask of the lanes of [block, block + 16) that are within [first, last).
__mmask16 visible_lanes(int block, int first, int last) {
  const unsigned below = first > block ? (1u << (first - block)) - 1u : 0u;
  return static_cast<__mmask16>(low_lanes(last - block) & ~below);
}

// The maximum over columns [first, last); the order does not matter.
float span_max(const float* scores, int first, int last) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 largest[2] = {lowest, lowest};
  int block = first / 16 * 16;
  const auto masked = [&](int at) {
    const __mmask16 mask = visible_lanes(at, first, last);
    largest[0] = _mm512_max_ps(largest[0], _mm512_mask_loadu_ps(lowest, mask, scores + at));
  };
  if (block < first) masked(block), block += 16;
  for (; block + 32 <= last; block += 32) {
    largest[0] = _mm512_max_ps(largest[0], _mm512_loadu_ps(scores + block));
    largest[1] = _mm512_max_ps(largest[1], _mm512_loadu_ps(scores + block + 16));
  }
  for (; block < last; block += 16) masked(block);
  return _mm512_reduce_max_ps(_mm512_max_ps(largest[0], largest[1]));
}

SpanSum softmax(float* scores, int first, int last) noexcept {
  const float max = span_max(scores, first, last);
  const __m512 maximum = _mm512_set1_ps(max);
  __m512 lanes = _mm512_setzero_ps();
  int block = first / 16 * 16;
  const auto masked = [&](int at) {
    const __mmask16 mask = visible_lanes(at, first, last);
    const __m512 shifted = _mm512_sub_ps(_mm512_loadu_ps(scores + at), maximum);
    const __m512 p = _mm512_maskz_mov_ps(mask, exp_lanes_below(shifted));
    lanes = _mm512_add_ps(lanes, p);
    _mm512_storeu_ps(scores + at, p);
  };
  if (block < first) masked(block), block += 16;
  for (; block + 32 <= last; block += 32) {
    const __m512 p0 = exp_lanes_below(_mm512_sub_ps(_mm512_loadu_ps(scores + block), maximum));
    const __m512 p1 = exp_lanes_below(_mm512_sub_ps(_mm512_loadu_ps(scores + block + 16), maximum));
    lanes = _mm512_add_ps(_mm512_add_ps(lanes, p0), p1);
    _mm512_storeu_ps(scores + block, p0);
    _mm512_storeu_ps(scores + block + 16, p1);
  }
  for (; block < last; block += 16) masked(block);
  return {max, add_lanes(lanes)};
}

// Computes B blocks of 16 columns, beginning at `block`; `mask` has a bit for each visible column.
template <int B>
void weigh_blocks(const WeighTile& tile, int block, __mmask16 mask) noexcept {
  __m512 scale[B], minimum[B];
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
    scale[b] = load16(tile.scales + block + b * 16, mask);
    minimum[b] = load16(tile.minima + block + b * 16, mask);
  }
  for (int r = 0; r < tile.queries; ++r) {
    const float* p = tile.p[r] + block;
    __m512 sums = _mm512_loadu_ps(tile.lanes[r]);
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      const __m512 probability = _mm512_loadu_ps(p + b * 16);
      sums = _mm512_fmadd_ps(probability, minimum[b], sums);
      _mm512_mask_storeu_ps(tile.weights[r] + block + b * 16, mask,
                            _mm512_mul_ps(probability, scale[b]));
    }
    _mm512_storeu_ps(tile.lanes[r], sums);
  }
}

void weigh(const WeighTile& tile) noexcept {
  if (tile.first == 0 && tile.last == 64) return weigh_blocks<4>(tile, 0, 0xffffu);
  for (int block = tile.first / 16 * 16; block < tile.last; block += 16) {
    weigh_blocks<1>(tile, block, visible_lanes(block, tile.first, tile.last));
  }
}

template <class Step>
void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + 16 <= n; k += 16) step(k, static_cast<__mmask16>(0xffffu));
  if (k < n) step(k, low_lanes(n - k));
}

void merge(const float* part, float a, float b, std::int64_t n, float* total) noexcept {
  const __m512 old_factor = _mm512_set1_ps(a);
  const __m512 new_factor = _mm512_set1_ps(b);
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 scaled = _mm512_mul_ps(load16(total + k, mask), old_factor);
    _mm512_mask_storeu_ps(total + k, mask,
                          _mm512_fmadd_ps(load16(part + k, mask), new_factor, scaled));
  });
}

void scale(const float* x, float factor, std::int64_t n, float* out) noexcept {
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    _mm512_mask_storeu_ps(out + k, mask,
                          _mm512_mul_ps(load16(x + k, mask), _mm512_set1_ps(factor)));
  });
}

void shift(const float* x, float addend, std::int64_t n, float* out) noexcept {
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    _mm512_mask_storeu_ps(out + k, mask,
                          _mm512_add_ps(load16(x + k, mask), _mm512_set1_ps(addend)));
  });
}

void rotate(const float* cosines, const float* sines, std::int64_t half, float* x) noexcept {
  for_registers(half, [=](std::int64_t i, __mmask16 mask) {
    const __m512 c = load16(cosines + i, mask), s = load16(sines + i, mask);
    const __m512 x0 = load16(x + i, mask), x1 = load16(x + i + half, mask);
    _mm512_mask_storeu_ps(x + i, mask, _mm512_fnmadd_ps(x1, s, _mm512_mul_ps(x0, c)));
    _mm512_mask_storeu_ps(x + i + half, mask, _mm512_fmadd_ps(x0, s, _mm512_mul_ps(x1, c)));
  });
}

__m512 clamped(__m512 x) {
  const __m512 limit = _mm512_set1_ps(kLargestF16);
  return _mm512_min_ps(_mm512_max_ps(x, _mm512_sub_ps(_mm512_setzero_ps(), limit)), limit);
}

void keep(const float* x, std::int64_t n, void* out, std::uint16_t*, std::uint16_t*) noexcept {
  __builtin_memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
}

void narrow(const float* x, std::int64_t n, void* halves, std::uint16_t*, std::uint16_t*) noexcept {
  auto* out = static_cast<std::uint16_t*>(halves);
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m256i half = _mm512_cvtps_ph(clamped(load16(x + k, mask)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(out + k, mask, half);
  });
}

// m = min rounded down, s = (max - m) / 255 rounded up, u = clip(rne((x - m) / s), 0, 255)
void encode(const float* x, std::int64_t n, void* numbers, std::uint16_t* scale_out,
            std::uint16_t* minimum_out) noexcept {
  auto* codes = static_cast<std::uint8_t*>(numbers);
  __m512 low = _mm512_set1_ps(kLargestF16);
  __m512 high = _mm512_set1_ps(-kLargestF16);
  for_registers(n, [&](std::int64_t k, __mmask16 mask) {
    const __m512 value = clamped(load16(x + k, mask));
    low = _mm512_mask_min_ps(low, mask, low, value);
    high = _mm512_mask_max_ps(high, mask, high, value);
  });
  *minimum_out = _cvtss_sh(_mm512_reduce_min_ps(low) + 0.0f, _MM_FROUND_TO_NEG_INF);
  const float m = _cvtsh_ss(*minimum_out);
  *scale_out = _cvtss_sh(((_mm512_reduce_max_ps(high) - m) + 0.0f) / 255.0f, _MM_FROUND_TO_POS_INF);
  const float s = _cvtsh_ss(*scale_out);
  const __m512 minimum = _mm512_set1_ps(m), divisor = _mm512_set1_ps(s == 0.0f ? 1.0f : s);
  const __mmask16 any = s == 0.0f ? 0 : 0xffffu;
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 steps =
        _mm512_div_ps(_mm512_sub_ps(clamped(load16(x + k, mask)), minimum), divisor);
    const __m512i code =
        _mm512_maskz_cvtps_epi32(any, _mm512_min_ps(steps, _mm512_set1_ps(255.0f)));
    _mm512_mask_cvtepi32_storeu_epi8(codes + k, mask, code);
  });
}

constexpr AttentionKernels kKernels = {.kv = {{.scores = float_scores<float>,
                                               .values = weighted_values<float>,
                                               .widen = nullptr,
                                               .store = keep},
                                              {.scores = float_scores<std::uint16_t>,
                                               .values = weighted_values<std::uint16_t>,
                                               .widen = widen<std::uint16_t>,
                                               .store = narrow},
                                              {.scores = int8_scores<PairProducts>,
                                               .values = weighted_values<std::uint8_t>,
                                               .widen = widen<std::uint8_t>,
                                               .store = encode}},
                                       .columns_in_order = 128,
                                       .softmax = softmax,
                                       .weigh = weigh,
                                       .lane_total = lane_total,
                                       .merge = merge,
                                       .scale = scale,
                                       .shift = shift,
                                       .rotate = rotate};

}  // namespace

const AttentionKernels& attention_kernels_avx512() { return kKernels; }

}  // namespace leq::cpu
