// Attention kernels with 256-bit registers: two registers hold one dimension of 16 keys, or 16
// dimensions of one value; up to 6 queries share each load.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/rows/x86/exp_avx2.h"

namespace leq::cpu {
namespace {

// All ones in the lanes below n.
__m256i low_lanes(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

__m256 load8(const float* x) { return _mm256_loadu_ps(x); }
__m256 load8(const std::uint16_t* x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
}
__m256 load8(const std::uint8_t* x) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x))));
}
// The first n of eight, the others 0.
__m256 load_some(const float* x, std::int64_t n) { return _mm256_maskload_ps(x, low_lanes(n)); }
template <class Number>
__m256 load_some(const Number* x, std::int64_t n) {
  if (n >= 8) return load8(x);
  Number copy[8] = {};
  if (n > 0) __builtin_memcpy(copy, x, static_cast<std::size_t>(n) * sizeof(Number));
  return load8(copy);
}

// 16 keys, R queries: one fma chain for each key.
template <class Key, int R>
void float_block(const ScoreTile& tile, int block) noexcept {
  const std::int64_t dims = tile.dims;
  const Key* keys = static_cast<const Key*>(tile.keys) + block * dims * kKeyBlock;
  const float* query[R];
  __m256 sums[R][2];
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[r];
    sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  }
  for (std::int64_t c = 0; c < dims; ++c) {
    const __m256 key0 = load8(keys + c * kKeyBlock);
    const __m256 key1 = load8(keys + c * kKeyBlock + 8);
    for (int r = 0; r < R; ++r) {
      const __m256 q = _mm256_set1_ps(query[r][c]);
      sums[r][0] = _mm256_fmadd_ps(q, key0, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(q, key1, sums[r][1]);
    }
  }
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(tile.scores[r] + block * kKeyBlock, sums[r][0]);
    _mm256_storeu_ps(tile.scores[r] + block * kKeyBlock + 8, sums[r][1]);
  }
}

// Eight keys' quads times one query quad: pairs in 16 bits, so that nothing saturates.
__m256i add_quads(__m256i sums, __m256i keys, __m256i query) {
  const __m256i low = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(keys));
  const __m256i high = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(keys, 1));
  // [key][2 pairs] sums of keys 0..3 and 4..7
  const __m256i pairs0 = _mm256_madd_epi16(low, query);
  const __m256i pairs1 = _mm256_madd_epi16(high, query);
  const __m256i mixed = _mm256_hadd_epi32(pairs0, pairs1);  // keys 0 1 4 5 | 2 3 6 7
  return _mm256_add_epi32(sums, _mm256_permute4x64_epi64(mixed, _MM_SHUFFLE(3, 1, 2, 0)));
}

// score = s_q * fma(s, float(sum u q), m * float(sum q))
template <int R>
void int8_block(const ScoreTile& tile, int block) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
  __m256i sums[R][2];
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  for (std::int64_t quad = 0; quad < quads; ++quad) {
    const auto* at = reinterpret_cast<const __m256i*>(keys + quad * 64);
    const __m256i key0 = _mm256_loadu_si256(at), key1 = _mm256_loadu_si256(at + 1);
    for (int r = 0; r < R; ++r) {
      std::int32_t four;
      __builtin_memcpy(&four, tile.codes[r] + quad * 4, sizeof four);
      const __m256i q = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
      sums[r][0] = add_quads(sums[r][0], key0, q);
      sums[r][1] = add_quads(sums[r][1], key1, q);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const int j = block * kKeyBlock + half * 8;
    const __m256 scale = load8(tile.scales + j), minimum = load8(tile.minima + j);
    for (int r = 0; r < R; ++r) {
      const __m256 low = _mm256_mul_ps(minimum, _mm256_set1_ps(tile.code_sum[r]));
      const __m256 value = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[r][half]), low);
      _mm256_storeu_ps(tile.scores[r] + j,
                       _mm256_mul_ps(_mm256_set1_ps(tile.code_scale[r]), value));
    }
  }
}

template <class Key, int R>
void float_rows(const ScoreTile& tile) noexcept {
  for (int b = tile.first_block; b < tile.last_block; ++b) float_block<Key, R>(tile, b);
}

template <int R>
void int8_rows(const ScoreTile& tile) noexcept {
  for (int b = tile.first_block; b < tile.last_block; ++b) int8_block<R>(tile, b);
}

using ScoreRows = void (*)(const ScoreTile&) noexcept;

template <class Key>
void float_scores(const ScoreTile& tile) noexcept {
  constexpr ScoreRows kRows[kQueryTile] = {float_rows<Key, 1>, float_rows<Key, 2>,
                                           float_rows<Key, 3>, float_rows<Key, 4>,
                                           float_rows<Key, 5>, float_rows<Key, 6>};
  kRows[tile.queries - 1](tile);
}

void int8_scores(const ScoreTile& tile) noexcept {
  constexpr ScoreRows kRows[kQueryTile] = {int8_rows<1>, int8_rows<2>, int8_rows<3>,
                                           int8_rows<4>, int8_rows<5>, int8_rows<6>};
  kRows[tile.queries - 1](tile);
}

// Columns [column, column + 16), R queries.
template <class Value, int R>
void value_columns(const ValueTile& tile, std::int64_t column) noexcept {
  const Value* values = static_cast<const Value*>(tile.values) + column;
  const float* weights[R];
  __m256 sums[R][2];
  for (int r = 0; r < R; ++r) {
    weights[r] = tile.weights[r];
    sums[r][0] = load8(tile.out[r] + column);
    sums[r][1] = load8(tile.out[r] + column + 8);
  }
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const __m256 value0 = load8(values + j * tile.dims);
    const __m256 value1 = load8(values + j * tile.dims + 8);
    for (int r = 0; r < R; ++r) {
      const __m256 weight = _mm256_set1_ps(weights[r][j]);
      sums[r][0] = _mm256_fmadd_ps(weight, value0, sums[r][0]);
      sums[r][1] = _mm256_fmadd_ps(weight, value1, sums[r][1]);
    }
  }
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(tile.out[r] + column, sums[r][0]);
    _mm256_storeu_ps(tile.out[r] + column + 8, sums[r][1]);
  }
}

// The last n < 16 columns, in two halves.
template <class Value>
void value_tail(const ValueTile& tile, std::int64_t column) noexcept {
  const Value* values = static_cast<const Value*>(tile.values);
  for (; column < tile.dims; column += 8) {
    const std::int64_t n = tile.dims - column < 8 ? tile.dims - column : 8;
    for (int r = 0; r < tile.queries; ++r) {
      __m256 sum = load_some(tile.out[r] + column, n);
      for (std::int64_t j = tile.first; j < tile.last; ++j) {
        sum = _mm256_fmadd_ps(_mm256_set1_ps(tile.weights[r][j]),
                              load_some(values + j * tile.dims + column, n), sum);
      }
      _mm256_maskstore_ps(tile.out[r] + column, low_lanes(n), sum);
    }
  }
}

template <class Value, int R>
void value_rows(const ValueTile& tile) noexcept {
  std::int64_t column = 0;
  for (; column + 16 <= tile.dims; column += 16) value_columns<Value, R>(tile, column);
  if (column < tile.dims) value_tail<Value>(tile, column);
}

template <class Value>
void weighted_values(const ValueTile& tile) noexcept {
  using Rows = void (*)(const ValueTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {value_rows<Value, 1>, value_rows<Value, 2>,
                                      value_rows<Value, 3>, value_rows<Value, 4>,
                                      value_rows<Value, 5>, value_rows<Value, 6>};
  kRows[tile.queries - 1](tile);
}

template <class Step>
void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + 8 <= n; k += 8) step(k, 8);
  if (k < n) step(k, n - k);
}

void store_some(float* out, std::int64_t n, __m256 x) { _mm256_maskstore_ps(out, low_lanes(n), x); }

template <class Number>
void widen(const void* numbers, std::int64_t n, float* out) noexcept {
  const auto* x = static_cast<const Number*>(numbers);
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    store_some(out + k, count, load_some(x + k, count));
  });
}

float lane_total(const float* lanes) noexcept {
  return add_lanes(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8));
}

// All ones in the lanes of [start, start + 8) that lie in [first, last).
__m256i visible_lanes(int start, int first, int last) {
  return _mm256_andnot_si256(low_lanes(first - start), low_lanes(last - start));
}

SpanSum softmax(float* scores, int first, int last) noexcept {
  const int begin = first / 16 * 16, end = (last + 15) / 16 * 16;
  __m256 largest = _mm256_set1_ps(-__builtin_inff());
  for (int j = begin; j < end; j += 8) {
    const __m256 visible = _mm256_castsi256_ps(visible_lanes(j, first, last));
    const __m256 score = _mm256_loadu_ps(scores + j);
    largest = _mm256_blendv_ps(largest, _mm256_max_ps(largest, score), visible);
  }
  alignas(32) float lane[8];
  _mm256_store_ps(lane, largest);
  float max = lane[0];
  for (const float value : lane) max = value > max ? value : max;
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int j = begin; j < end; j += 8) {
    const __m256 visible = _mm256_castsi256_ps(visible_lanes(j, first, last));
    const __m256 shifted = _mm256_sub_ps(_mm256_loadu_ps(scores + j), _mm256_set1_ps(max));
    const __m256 p = _mm256_and_ps(exp_lanes(shifted), visible);
    lanes[j / 8 % 2] = _mm256_add_ps(lanes[j / 8 % 2], p);
    _mm256_storeu_ps(scores + j, p);
  }
  return {max, add_lanes(lanes[0], lanes[1])};
}

void weigh(float* p, int first, int last, const std::uint16_t* scales, const std::uint16_t* minima,
           float* lanes) noexcept {
  const int begin = first / 16 * 16, end = (last + 15) / 16 * 16;
  for (int j = begin; j < end; j += 8) {
    const __m256i visible = visible_lanes(j, first, last);
    const __m256 mask = _mm256_castsi256_ps(visible);
    const __m256 probability = _mm256_loadu_ps(p + j);
    float* lane = lanes + j % 16;
    const __m256 minimum = _mm256_and_ps(load8(minima + j), mask);
    _mm256_storeu_ps(lane, _mm256_fmadd_ps(probability, minimum, _mm256_loadu_ps(lane)));
    _mm256_maskstore_ps(p + j, visible, _mm256_mul_ps(probability, load8(scales + j)));
  }
}

void merge(const float* part, float a, float b, std::int64_t n, float* total) noexcept {
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    const __m256 scaled = _mm256_mul_ps(load_some(total + k, count), _mm256_set1_ps(a));
    store_some(total + k, count,
               _mm256_fmadd_ps(load_some(part + k, count), _mm256_set1_ps(b), scaled));
  });
}

void scale(const float* x, float factor, std::int64_t n, float* out) noexcept {
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    store_some(out + k, count, _mm256_mul_ps(load_some(x + k, count), _mm256_set1_ps(factor)));
  });
}

void shift(const float* x, float addend, std::int64_t n, float* out) noexcept {
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    store_some(out + k, count, _mm256_add_ps(load_some(x + k, count), _mm256_set1_ps(addend)));
  });
}

void rotate(const float* cosines, const float* sines, std::int64_t half, float* x) noexcept {
  for_registers(half, [=](std::int64_t i, std::int64_t count) {
    const __m256 c = load_some(cosines + i, count), s = load_some(sines + i, count);
    const __m256 x0 = load_some(x + i, count), x1 = load_some(x + i + half, count);
    store_some(x + i, count, _mm256_fnmadd_ps(x1, s, _mm256_mul_ps(x0, c)));
    store_some(x + i + half, count, _mm256_fmadd_ps(x0, s, _mm256_mul_ps(x1, c)));
  });
}

__m256 clamped(__m256 x) {
  const __m256 above = _mm256_max_ps(x, _mm256_set1_ps(-kLargestF16));
  return _mm256_min_ps(above, _mm256_set1_ps(kLargestF16));
}

void keep(const float* x, std::int64_t n, void* out, std::uint16_t*, std::uint16_t*) noexcept {
  __builtin_memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
}

void narrow(const float* x, std::int64_t n, void* halves, std::uint16_t*, std::uint16_t*) noexcept {
  auto* out = static_cast<std::uint16_t*>(halves);
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    const __m128i half = _mm256_cvtps_ph(clamped(load_some(x + k, count)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    alignas(16) std::uint16_t eight[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(eight), half);
    __builtin_memcpy(out + k, eight, static_cast<std::size_t>(count) * 2);
  });
}

// m = min rounded down, s = (max - m) / 255 rounded up, u = clip(rne((x - m) / s), 0, 255)
void encode(const float* x, std::int64_t n, void* numbers, std::uint16_t* scale_out,
            std::uint16_t* minimum_out) noexcept {
  auto* codes = static_cast<std::uint8_t*>(numbers);
  float low = x[0], high = x[0];
  for (std::int64_t k = 1; k < n; ++k) {
    low = x[k] < low ? x[k] : low;
    high = x[k] > high ? x[k] : high;
  }
  const __m256 ends = clamped(_mm256_setr_ps(low, high, 0, 0, 0, 0, 0, 0));
  low = _mm256_cvtss_f32(ends);
  high = _mm256_cvtss_f32(_mm256_permute_ps(ends, 1));
  *minimum_out = _cvtss_sh(low + 0.0f, _MM_FROUND_TO_NEG_INF);
  const float m = _cvtsh_ss(*minimum_out);
  *scale_out = _cvtss_sh(((high - m) + 0.0f) / 255.0f, _MM_FROUND_TO_POS_INF);
  const float s = _cvtsh_ss(*scale_out);
  if (s == 0.0f) {
    __builtin_memset(codes, 0, static_cast<std::size_t>(n));
    return;
  }
  for_registers(n, [=](std::int64_t k, std::int64_t count) {
    const __m256 above = _mm256_sub_ps(clamped(load_some(x + k, count)), _mm256_set1_ps(m));
    const __m256 steps = _mm256_div_ps(above, _mm256_set1_ps(s));
    const __m256i code = _mm256_cvtps_epi32(_mm256_min_ps(steps, _mm256_set1_ps(255.0f)));
    alignas(32) std::int32_t eight[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(eight), code);
    for (std::int64_t i = 0; i < count; ++i) codes[k + i] = static_cast<std::uint8_t>(eight[i]);
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
                                              {.scores = int8_scores,
                                               .values = weighted_values<std::uint8_t>,
                                               .widen = widen<std::uint8_t>,
                                               .store = encode}},
                                       .softmax = softmax,
                                       .weigh = weigh,
                                       .lane_total = lane_total,
                                       .merge = merge,
                                       .scale = scale,
                                       .shift = shift,
                                       .rotate = rotate};

}  // namespace

const AttentionKernels& attention_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
