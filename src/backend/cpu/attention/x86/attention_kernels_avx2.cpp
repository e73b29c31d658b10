// Attention kernels with 256-bit registers. Two registers hold one dimension of 16 keys, or 16
// dimensions of one value; up to 6 queries share each load.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/attention/x86/prefetcher.h"
#include "backend/cpu/rows/x86/floats_avx2.h"

namespace leq::cpu {
namespace {

// A mask of all ones in the lanes below n.
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
// Loads the first n of eight numbers; the other lanes are 0.
__m256 load_some(const float* x, std::int64_t n) {
  return n >= 8 ? load8(x) : _mm256_maskload_ps(x, low_lanes(n));
}
// Full registers are stored without a mask, because masked stores are slow on AMD processors.
void store_some(float* out, std::int64_t n, __m256 x) {
  if (n >= 8) {
    _mm256_storeu_ps(out, x);
  } else {
    _mm256_maskstore_ps(out, low_lanes(n), x);
  }
}
template <class Number>
__m256 load_some(const Number* x, std::int64_t n) {
  if (n >= 8) return load8(x);
  Number copy[8] = {};
  if (n > 0) __builtin_memcpy(copy, x, static_cast<std::size_t>(n) * sizeof(Number));
  return load8(copy);
}

// sums[r][i] += factor(r) * vector(i), with all sums in registers. Either factors or vectors are
// held in registers, whichever are fewer; the others are loaded one at a time. With both held, g++
// 12 spills the sums to memory, and each product waits for the previous store.
template <int R, int N, class Factor, class Vector>
inline __attribute__((always_inline)) void add_products(__m256 (&sums)[R][N], Factor factor,
                                                        Vector vector) {
  if constexpr (N < R) {
    __m256 y[N];
    for (int i = 0; i < N; ++i) y[i] = vector(i);
    for (int r = 0; r < R; ++r) {
      const __m256 x = factor(r);
      for (int i = 0; i < N; ++i) sums[r][i] = _mm256_fmadd_ps(x, y[i], sums[r][i]);
    }
  } else {
    __m256 x[R];
    for (int r = 0; r < R; ++r) x[r] = factor(r);
    for (int i = 0; i < N; ++i) {
      const __m256 y = vector(i);
      for (int r = 0; r < R; ++r) sums[r][i] = _mm256_fmadd_ps(x[r], y, sums[r][i]);
    }
  }
}

// Key blocks per pass: few queries need more fma chains, from more keys, to hide latency.
constexpr int blocks_at_once(int queries) { return queries == 1 ? 4 : queries == 2 ? 2 : 1; }

// Scores of key blocks [block, block + B), 16 keys each, for R queries; one fma chain per key.
template <class Key, int R, int B>
void float_blocks(const ScoreTile& tile, int block, const Prefetcher& ahead) noexcept {
  const std::int64_t dims = tile.dims;
  const Key* keys = static_cast<const Key*>(tile.keys) + block * dims * kKeyBlock;
  const float* query[R];
  __m256 sums[R][2 * B];
  for (int r = 0; r < R; ++r) {
    query[r] = tile.query[r];
    for (int i = 0; i < 2 * B; ++i) sums[r][i] = _mm256_setzero_ps();
  }
  for (std::int64_t c = 0; c < dims; ++c) {
    ahead.step(c);
    add_products(
        sums, [&](int r) { return _mm256_set1_ps(query[r][c]); },
        [&](int i) { return load8(keys + (i / 2 * dims + c) * kKeyBlock + i % 2 * 8); });
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 2 * B; ++i) {
      _mm256_storeu_ps(tile.scores[r] + block * kKeyBlock + i * 8, sums[r][i]);
    }
  }
}

// Quads of query codes widened to 16 bits, in the pairs that vpmaddwd needs: columns 0, 2 and 1, 3.
constexpr std::int64_t kQueryQuads = 64;
template <int R>
struct QueryPairs {
  std::int32_t even[R][kQueryQuads];
  std::int32_t odd[R][kQueryQuads];

  void take(const ScoreTile& tile, std::int64_t first, std::int64_t count) {
    const auto word = [](std::int8_t code) { return static_cast<std::uint16_t>(code); };
    for (int r = 0; r < R; ++r) {
      const std::int8_t* quad = tile.codes[r] + first * 4;
      for (std::int64_t i = 0; i < count; ++i, quad += 4) {
        even[r][i] = word(quad[0]) | word(quad[2]) << 16;
        odd[r][i] = word(quad[1]) | word(quad[3]) << 16;
      }
    }
  }
};

// sums += codes times query codes, for `count` quads of B blocks. A shift widens the odd bytes and
// a mask the even bytes to 16 bits, so that nothing saturates.
template <int R, int B>
inline __attribute__((always_inline)) void add_quads(const std::uint8_t* keys, std::int64_t stride,
                                                     std::int64_t count, const QueryPairs<R>& query,
                                                     const Prefetcher& ahead,
                                                     __m256i (&sums)[R][2 * B]) {
  const __m256i low = _mm256_set1_epi16(0xff);
  for (std::int64_t quad = 0; quad < count; ++quad, keys += 64) {
    ahead.step(quad);
#pragma GCC unroll 8
    for (int i = 0; i < 2 * B; ++i) {
      const auto* at = reinterpret_cast<const __m256i*>(keys + i / 2 * stride + i % 2 * 32);
      const __m256i bytes = _mm256_loadu_si256(at);
      const __m256i even = _mm256_and_si256(bytes, low), odd = _mm256_srli_epi16(bytes, 8);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const __m256i q0 = _mm256_set1_epi32(query.even[r][quad]);
        const __m256i q1 = _mm256_set1_epi32(query.odd[r][quad]);
        sums[r][i] = _mm256_add_epi32(sums[r][i], _mm256_madd_epi16(even, q0));
        sums[r][i] = _mm256_add_epi32(sums[r][i], _mm256_madd_epi16(odd, q1));
      }
    }
  }
}

// score = s_q * fma(s, float(sum u q), m * float(sum q)). If all quads of the query fit into
// `query`, the caller has already filled it.
template <int R, int B>
void int8_blocks(const ScoreTile& tile, int block, QueryPairs<R>& query,
                 const Prefetcher& ahead) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
  __m256i sums[R][2 * B];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 2 * B; ++i) sums[r][i] = _mm256_setzero_si256();
  }
  for (std::int64_t first = 0; first < quads; first += kQueryQuads) {
    const std::int64_t count = quads - first < kQueryQuads ? quads - first : kQueryQuads;
    if (quads > kQueryQuads) query.take(tile, first, count);
    add_quads<R, B>(keys + first * 64, quads * 64, count, query, ahead.after(first), sums);
  }
  for (int i = 0; i < 2 * B; ++i) {
    const int j = block * kKeyBlock + i * 8;
    const __m256 scale = load8(tile.scales + j), minimum = load8(tile.minima + j);
    for (int r = 0; r < R; ++r) {
      const __m256 low = _mm256_mul_ps(minimum, _mm256_set1_ps(tile.code_sum[r]));
      const __m256 value = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[r][i]), low);
      _mm256_storeu_ps(tile.scores[r] + j,
                       _mm256_mul_ps(_mm256_set1_ps(tile.code_scale[r]), value));
    }
  }
}

template <class Key, int R>
void float_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = blocks_at_once(R);
  int block = tile.first_block;
  Prefetcher ahead(tile.ahead, turns(tile, kBlocks) * tile.dims);
  const int last_joint = tile.in_order ? block : tile.last_block;
  for (; block + kBlocks <= last_joint; block += kBlocks) {
    float_blocks<Key, R, kBlocks>(tile, block, ahead);
    ahead = ahead.after(tile.dims);
  }
  for (; block < tile.last_block; ++block) float_blocks<Key, R, 1>(tile, block, ahead);
}

template <int R>
void int8_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = blocks_at_once(R);
  const std::int64_t quads = (tile.dims + 3) / 4;
  QueryPairs<R> query;
  if (quads <= kQueryQuads) query.take(tile, 0, quads);
  int block = tile.first_block;
  Prefetcher ahead(tile.ahead, turns(tile, kBlocks) * quads);
  for (; block + kBlocks <= tile.last_block; block += kBlocks) {
    int8_blocks<R, kBlocks>(tile, block, query, ahead);
    ahead = ahead.after(quads);
  }
  for (; block < tile.last_block; ++block) int8_blocks<R, 1>(tile, block, query, ahead);
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

// Adds to output columns [column, column + 8 D) of R queries.
template <class Value, int R, int D>
void value_columns(const ValueTile& tile, std::int64_t column) noexcept {
  const Value* values = static_cast<const Value*>(tile.values) + column;
  const float* weights[R];
  __m256 sums[R][D];
  for (int r = 0; r < R; ++r) {
    weights[r] = tile.weights[r];
    for (int i = 0; i < D; ++i) sums[r][i] = load8(tile.out[r] + column + i * 8);
  }
  const Prefetcher ahead(share_of(tile.ahead, column, column + 8 * D, tile.dims),
                         tile.last - tile.first);
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    ahead.step(j - tile.first);
    add_products(
        sums, [&](int r) { return _mm256_set1_ps(weights[r][j]); },
        [&](int i) { return load8(values + j * tile.dims + i * 8); });
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < D; ++i) _mm256_storeu_ps(tile.out[r] + column + i * 8, sums[r][i]);
  }
}

// Adds to the last n columns, n < 16, in two halves.
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
      store_some(tile.out[r] + column, n, sum);
    }
  }
}

template <class Value, int R>
void value_rows(const ValueTile& tile) noexcept {
  constexpr int kRegisters = R == 1 ? 8 : R <= 3 ? 4 : 2;
  constexpr std::int64_t kColumns = 8 * kRegisters;
  std::int64_t column = 0;
  for (; column + kColumns <= tile.dims; column += kColumns) {
    value_columns<Value, R, kRegisters>(tile, column);
  }
  for (; column + 16 <= tile.dims; column += 16) {
    value_columns<Value, R, 2>(tile, column);
  }
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

// A mask of all ones in the lanes of [start, start + 8) that are within [first, last).
__m256i visible_lanes(int start, int first, int last) {
  return _mm256_andnot_si256(low_lanes(first - start), low_lanes(last - start));
}

// The maximum over columns [first, last); the order does not matter.
float span_max(const float* scores, int first, int last) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 largest[2] = {lowest, lowest};
  int j = first / 8 * 8;
  const auto masked = [&](int at) {
    const __m256 visible = _mm256_castsi256_ps(visible_lanes(at, first, last));
    const __m256 score = _mm256_blendv_ps(lowest, _mm256_loadu_ps(scores + at), visible);
    largest[0] = _mm256_max_ps(largest[0], score);
  };
  if (j < first) masked(j), j += 8;
  for (; j + 16 <= last; j += 16) {
    largest[0] = _mm256_max_ps(largest[0], _mm256_loadu_ps(scores + j));
    largest[1] = _mm256_max_ps(largest[1], _mm256_loadu_ps(scores + j + 8));
  }
  for (; j < last; j += 8) masked(j);
  alignas(32) float lane[8];
  _mm256_store_ps(lane, _mm256_max_ps(largest[0], largest[1]));
  float max = lane[0];
  for (const float value : lane) max = value > max ? value : max;
  return max;
}

SpanSum softmax(float* scores, int first, int last) noexcept {
  const float max = span_max(scores, first, last);
  const __m256 maximum = _mm256_set1_ps(max);
  __m256 lanes[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  const auto exp_at = [&](int at) {
    return exp_lanes_below(_mm256_sub_ps(_mm256_loadu_ps(scores + at), maximum));
  };
  const auto masked = [&](int block) {
    for (int half = 0; half < 2; ++half) {
      const int at = block + half * 8;
      const __m256 visible = _mm256_castsi256_ps(visible_lanes(at, first, last));
      const __m256 p = _mm256_and_ps(exp_at(at), visible);
      lanes[half] = _mm256_add_ps(lanes[half], p);
      _mm256_storeu_ps(scores + at, p);
    }
  };
  int block = first / 16 * 16;
  if (block < first) masked(block), block += 16;
  for (; block + 16 <= last; block += 16) {
    const __m256 p0 = exp_at(block), p1 = exp_at(block + 8);
    lanes[0] = _mm256_add_ps(lanes[0], p0);
    lanes[1] = _mm256_add_ps(lanes[1], p1);
    _mm256_storeu_ps(scores + block, p0);
    _mm256_storeu_ps(scores + block + 8, p1);
  }
  for (; block < last; block += 16) masked(block);
  return {max, add_lanes(lanes[0], lanes[1])};
}

void weigh(const WeighTile& tile) noexcept {
  const int begin = tile.first / 16 * 16, end = (tile.last + 15) / 16 * 16;
  for (int j = begin; j < end; j += 8) {
    const __m256i visible = visible_lanes(j, tile.first, tile.last);
    const bool all = j >= tile.first && j + 8 <= tile.last;
    const __m256 minimum = _mm256_and_ps(load8(tile.minima + j), _mm256_castsi256_ps(visible));
    const __m256 scale = load8(tile.scales + j);
    for (int r = 0; r < tile.queries; ++r) {
      const __m256 p = _mm256_loadu_ps(tile.p[r] + j);
      float* lane = tile.lanes[r] + j % 16;
      _mm256_storeu_ps(lane, _mm256_fmadd_ps(p, minimum, _mm256_loadu_ps(lane)));
      const __m256 weight = _mm256_mul_ps(p, scale);
      if (all) {
        _mm256_storeu_ps(tile.weights[r] + j, weight);
      } else {
        _mm256_maskstore_ps(tile.weights[r] + j, visible, weight);
      }
    }
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
                                       .columns_in_order = 64,
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
