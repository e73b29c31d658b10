// The AVX2 kernels but integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/attention_lanes.h"
#include "backend/cpu/kernels/delta_lanes.h"
#include "backend/cpu/kernels/float_lanes.h"
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/portable.inc"
#include "backend/cpu/kernels/row_lanes.h"
#include "backend/cpu/kernels/x86/lanes_avx2.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// Rows.

// The 256 lanes of a norm's sum would fill 32 registers, twice as many as exist, so that each
// quarter of the lanes is summed in a separate pass over its columns.
struct Quarter {
  static constexpr int kRegisters = 8;
  __m256 sums[kRegisters];
};

// Calls step(sums of eight lanes, their columns, mask of valid columns) for the 64 lanes that begin
// at `first`.
template <class Step>
Quarter sum_quarter(const float* x, std::int64_t first, std::int64_t n, Step step) {
  constexpr std::int64_t kColumns = Quarter::kRegisters * Floats256::kLanes;
  __m256 sums[Quarter::kRegisters];
#pragma GCC unroll 8
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  std::int64_t k = first;
  for (; k + kColumns <= n; k += 4 * kColumns) {
#pragma GCC unroll 8
    for (int i = 0; i < Quarter::kRegisters; ++i) {
      sums[i] =
          step(sums[i], _mm256_loadu_ps(x + k + i * Floats256::kLanes), _mm256_set1_epi32(-1));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) {
    const std::int64_t left = n - k - i * Floats256::kLanes;
    if (left <= 0) break;
    const __m256i mask = Floats256::first_lanes(left);
    sums[i] = step(sums[i], Floats256::load(x + k + i * Floats256::kLanes, mask), mask);
  }
  return {{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]}};
}

Quarter operator+(const Quarter& a, const Quarter& b) {
  Quarter both;
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) both.sums[i] = _mm256_add_ps(a.sums[i], b.sums[i]);
  return both;
}

// Adds lanes 128, 64, ... 1 apart; quarters beyond the last column would be +0 and are skipped.
template <class Step>
float norm_sum(const float* x, std::int64_t n, Step step) {
  Quarter all = sum_quarter(x, 0, n, step);
  if (n > 128) all = all + sum_quarter(x, 128, n, step);
  if (n > 64) {
    Quarter odd = sum_quarter(x, 64, n, step);
    if (n > 192) odd = odd + sum_quarter(x, 192, n, step);
    all = all + odd;
  }
  const auto& sums = all.sums;
  const __m256 low =
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[4]), _mm256_add_ps(sums[2], sums[6]));
  const __m256 high =
      _mm256_add_ps(_mm256_add_ps(sums[1], sums[5]), _mm256_add_ps(sums[3], sums[7]));
  return Floats256::total({low, high});
}

// The codes of 32 numbers are written by one store, because a load soon after several smaller
// stores stalls until these reach the cache. Bytes are summed as unsigned codes + 128.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const __m256 factor = _mm256_set1_ps(inv);
  const __m256 low = _mm256_set1_ps(-127.0f);
  const __m256 high = _mm256_set1_ps(127.0f);
  const auto rounded = [=](__m256 v) {
    const __m256 scaled = _mm256_mul_ps(v, factor);
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, low), high));
  };
  // Pack instructions interleave 16-byte parts of the registers; this restores the order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(offset));
  const auto packed = [=](__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i all = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(all, order);
  };
  const __m256i none = _mm256_setzero_si256(), flip = _mm256_set1_epi8(-128);
  __m256i sums = none, last_sums = none;
  std::int64_t first = 0;
  for (; first + 32 <= n; first += 32) {
    const auto eight = [&](int i) { return rounded(_mm256_loadu_ps(x + first + 8 * i)); };
    const __m256i all = packed(eight(0), eight(1), eight(2), eight(3));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + first), _mm256_add_epi8(all, shift));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_xor_si256(all, flip), none));
  }
  for_registers<Floats256>(n - first, [&](std::int64_t k, auto lanes) {
    const __m256i code = rounded(lanes.load(x + first + k));
    last_sums = _mm256_add_epi32(last_sums, code);
    const __m256i bytes = _mm256_add_epi8(packed(code, none, none, none), shift);
    const std::int64_t eight = _mm256_extract_epi64(bytes, 0), left = n - first - k;
    __builtin_memcpy(codes + first + k, &eight, static_cast<std::size_t>(left < 8 ? left : 8));
  });
  alignas(32) std::int64_t wide[4];
  alignas(32) std::int32_t narrow[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(wide), sums);
  _mm256_store_si256(reinterpret_cast<__m256i*>(narrow), last_sums);
  std::int64_t sum = -128 * first;
  for (const std::int64_t part : wide) sum += part;
  for (const std::int32_t part : narrow) sum += part;
  return static_cast<std::int32_t>(sum);
}

struct Rows256 : Floats256 {
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  template <class Step>
  static float norm_sum(const float* x, std::int64_t n, Step step) {
    return cpu::norm_sum(x, n, step);
  }
  static std::uint32_t most_of(Words words) {
    std::uint32_t most = 0;
    for (int lane = 0; lane < kLanes; ++lane) most = words[lane] > most ? words[lane] : most;
    return most;
  }
  static constexpr auto quantize = cpu::quantize;
};

// Gated DeltaNet: registers do not suffice for the sums of two tokens.
struct DeltaLanes : Floats256 {
  static constexpr bool kManyRegisters = false;
};

// Float matmuls: 12 accumulators for several tokens; 8 for one, whose weights are read as four
// streams.
struct FloatLanes : Floats256 {
  static constexpr int kTokens = 3, kOutputs = 2, kOutputsAlone = 4, kFetch = 0;
};

// Attention. Two registers hold one dimension of 16 keys, or 16 dimensions of one value; up to 6
// queries share each load.

// A mask of all ones in the lanes below n.
__m256i low_lanes(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

template <class Number>
__m256 load8(const Number* x) {
  return Floats256::load(x);
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

// Packed codes of the cache; up to 3 queries share the codes of each load.

constexpr int kRowsAtOnce = 3;  // queries that share the codes of each load

// The codes in the low bits of each lane, converted to floats.
template <int bits>
__m256 low_codes(__m256i lanes) {
  return _mm256_cvtepi32_ps(_mm256_and_si256(lanes, _mm256_set1_epi32((1 << bits) - 1)));
}

__m256i bytes8(const std::uint8_t* at) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}

// Scores of key blocks [block, block + B) for queries [first, first + R). `block` is even if B is
// 2, and 0 if B is 4, so that blocks in the same bytes share loads. Many fma chains hide latency.
template <int bits, int R, int B>
void score_some(const PackedScoreTile& tile, int block, int first) noexcept {
  constexpr int kBlocks = 8 / bits;                     // blocks of 16 keys in a row of 16 bytes
  constexpr int kRows = B > kBlocks ? B / kBlocks : 1;  // rows of 16 bytes
  constexpr bool kWhole = B % kBlocks == 0;             // the blocks fill whole rows
  const std::int64_t dims = tile.dims;
  const std::uint8_t* rows[kRows];
  const __m128i begin = _mm_cvtsi32_si128(block % kBlocks * bits);
  __m256 sums[R][B][2];
  const float* query[R][B];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) rows[i] = tile.keys + (block / kBlocks + i) * dims * 16;
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      query[r][b] = tile.query[first + r][(block + b) / 2];
      sums[r][b][0] = sums[r][b][1] = _mm256_set1_ps(tile.start[first + r][(block + b) / 2]);
    }
  }
  Prefetcher ahead(block == tile.first_block && first == 0 ? tile.ahead : Ahead{}, dims);
  for (std::int64_t c = 0; c < dims; ++c) {
    ahead.step(c);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256i lanes = bytes8(rows[i] + c * 16 + half * 8);
        if constexpr (!kWhole) lanes = _mm256_srl_epi32(lanes, begin);
#pragma GCC unroll 4
        for (int n = 0; n < B / kRows; ++n) {
          const __m256 key = low_codes<bits>(_mm256_srli_epi32(lanes, n * bits));
          const int b = i * (B / kRows) + n;
#pragma GCC unroll 3
          for (int r = 0; r < R; ++r) {
            const __m256 q = _mm256_set1_ps(query[r][b][c]);
            sums[r][b][half] = _mm256_fmadd_ps(q, key, sums[r][b][half]);
          }
        }
      }
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      float* scores = tile.scores[first + r] + (block + b) * kKeyBlock;
      _mm256_storeu_ps(scores, sums[r][b][0]);
      _mm256_storeu_ps(scores + 8, sums[r][b][1]);
    }
  }
}

// Sums need 6 registers for 2 key blocks x 3 queries, or 8 registers for 4 key blocks x 1 query.
template <int bits, int R>
void score_rows(const PackedScoreTile& tile, int first) noexcept {
  int block = tile.first_block;
  if (R == 1 && block == 0 && tile.last_block == 4) return score_some<bits, R, 4>(tile, 0, first);
  if (block % 2 == 1 && block < tile.last_block) score_some<bits, R, 1>(tile, block++, first);
  for (; block + 2 <= tile.last_block; block += 2) score_some<bits, R, 2>(tile, block, first);
  for (; block < tile.last_block; ++block) score_some<bits, R, 1>(tile, block, first);
}

template <int bits>
void wide_scores(const PackedScoreTile& tile) noexcept {
  int first = 0;
  for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
    score_rows<bits, kRowsAtOnce>(tile, first);
  }
  if (tile.queries - first == 2) return score_rows<bits, 2>(tile, first);
  if (tile.queries - first == 1) return score_rows<bits, 1>(tile, first);
}

// Unpacks the codes of eight of 16 channels, one to a lane.
template <int bits>
__m256 channels8(const std::uint8_t* at, int half) {
  if constexpr (bits == 8) return low_codes<8>(bytes8(at + half * 8));
  const int low = half * 16;
  if constexpr (bits == 4) {
    std::int64_t both;
    __builtin_memcpy(&both, at, sizeof both);
    const __m256i digits =
        _mm256_setr_epi32(low, low, low + 4, low + 4, low + 8, low + 8, low + 12, low + 12);
    return low_codes<4>(_mm256_srlv_epi32(_mm256_set1_epi64x(both), digits));
  }
  std::int32_t all;
  __builtin_memcpy(&all, at, sizeof all);
  const __m256i digits =
      _mm256_setr_epi32(low, low + 2, low + 4, low + 6, low + 8, low + 10, low + 12, low + 14);
  return low_codes<2>(_mm256_srlv_epi32(_mm256_set1_epi32(all), digits));
}

// Adds to 16 D channels, beginning at `column`, of queries [first, first + R); results go to `out`.
template <int bits, int R, int D>
void value_some(const PackedValueTile& tile, int column, int first, float* const* out) noexcept {
  const std::uint8_t* values = tile.values + column / 16 * 2 * bits;
  __m256 sums[R][D][2];
  std::int64_t group[D];
  for (int i = 0; i < D; ++i) {
    group[i] = (column + i * 16) / tile.group * kPageColumns;
    for (int r = 0; r < R; ++r) {
      sums[r][i][0] = _mm256_loadu_ps(out[r] + i * 16);
      sums[r][i][1] = _mm256_loadu_ps(out[r] + i * 16 + 8);
    }
  }
  Prefetcher ahead(first == 0 ? share_of(tile.ahead, column, column + 16 * D, tile.dims) : Ahead{},
                   tile.last - tile.first);
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const std::uint8_t* at = values + j * tile.row_bytes;
    ahead.step(j - tile.first);
    for (int i = 0; i < D; ++i) {
      const __m256 value0 = channels8<bits>(at + i * 2 * bits, 0);
      const __m256 value1 = channels8<bits>(at + i * 2 * bits, 1);
      for (int r = 0; r < R; ++r) {
        const __m256 weight = _mm256_set1_ps(tile.weights[first + r][group[i] + j]);
        sums[r][i][0] = _mm256_fmadd_ps(weight, value0, sums[r][i][0]);
        sums[r][i][1] = _mm256_fmadd_ps(weight, value1, sums[r][i][1]);
      }
    }
  }
  for (int i = 0; i < D; ++i) {
    for (int r = 0; r < R; ++r) {
      _mm256_storeu_ps(out[r] + i * 16, sums[r][i][0]);
      _mm256_storeu_ps(out[r] + i * 16 + 8, sums[r][i][1]);
    }
  }
}

template <int bits, int R>
void value_rows(const PackedValueTile& tile, int first) noexcept {
  constexpr int kRegisters = R == 1 ? 4 : 2;
  float* out[R];
  const auto place = [&](int at) {
    for (int r = 0; r < R; ++r) out[r] = tile.out[first + r] + at;
  };
  int column = 0;
  for (; column + 16 * kRegisters <= tile.dims; column += 16 * kRegisters) {
    place(column);
    value_some<bits, R, kRegisters>(tile, column, first, out);
  }
  for (; column + 16 <= tile.dims; column += 16) {
    place(column);
    value_some<bits, R, 1>(tile, column, first, out);
  }
  if (column == tile.dims) return;
  const int rest = tile.dims - column;  // fewer than 16 columns are computed in a buffer
  float buffer[R][16];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 16; ++i) buffer[r][i] = i < rest ? tile.out[first + r][column + i] : 0.0f;
    out[r] = buffer[r];
  }
  value_some<bits, R, 1>(tile, column, first, out);
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < rest; ++i) tile.out[first + r][column + i] = buffer[r][i];
  }
}

template <int bits>
void wide_values(const PackedValueTile& tile) noexcept {
  int first = 0;
  for (; first + kRowsAtOnce <= tile.queries; first += kRowsAtOnce) {
    value_rows<bits, kRowsAtOnce>(tile, first);
  }
  for (; first < tile.queries; ++first) value_rows<bits, 1>(tile, first);
}

// Transposes a matrix of 8 x 8 numbers.
void transpose(__m256 (&x)[8]) {
  __m256 a[8], b[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {  // b[i + k] has columns k and 4 + k of rows i to i + 3
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    x[k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x20);
    x[4 + k] = _mm256_permute2f128_ps(b[k], b[4 + k], 0x31);
  }
}

// Eight f16 numbers of a row, as floats; numbers from index `there` on are +0.
__m256 halves8(const std::uint16_t* row, int there) {
  if (there >= 8) return Floats256::load(row);
  std::uint16_t eight[8] = {};
  for (int i = 0; i < there; ++i) eight[i] = row[i];
  return Floats256::load(eight);
}

// Channels [first, first + 8) of the rows, as columns of 16 numbers; missing numbers are +0.
void eight_columns(const ChainTile& tile, int first, float (&columns)[8][kMostChains]) {
  for (int row = 0; row < kMostChains; row += 8) {
    __m256 x[8];
    for (int i = 0; i < 8; ++i) {
      x[i] = row + i < tile.count ? halves8(tile.rows[row + i] + first, tile.dims - first)
                                  : _mm256_setzero_ps();
    }
    transpose(x);
    for (int c = 0; c < 8; ++c) _mm256_storeu_ps(columns[c] + row, x[c]);
  }
}

// Two registers hold 16 chains, one chain in each lane.
template <int R>
void chain_rows(const ChainTile& tile) noexcept {
  __m256 sums[R][2];
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (int first = 0; first < tile.dims; first += 8) {
    float columns[8][kMostChains];
    eight_columns(tile, first, columns);
    const int last = tile.dims - first < 8 ? tile.dims - first : 8;
    for (int c = 0; c < last; ++c) {
      const __m256 low = _mm256_loadu_ps(columns[c]), high = _mm256_loadu_ps(columns[c] + 8);
      for (int r = 0; r < R; ++r) {
        const __m256 q = _mm256_set1_ps(tile.query[r][first + c]);
        sums[r][0] = _mm256_fmadd_ps(q, low, sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(q, high, sums[r][1]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float z[kMostChains];
    _mm256_storeu_ps(z, sums[r][0]);
    _mm256_storeu_ps(z + 8, sums[r][1]);
    for (int i = 0; i < tile.count; ++i) tile.z[r][i] = z[i];
  }
}

void wide_chains(const ChainTile& tile) noexcept {
  using Rows = void (*)(const ChainTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {chain_rows<1>, chain_rows<2>, chain_rows<3>,
                                      chain_rows<4>, chain_rows<5>, chain_rows<6>};
  kRows[tile.queries - 1](tile);
}

constexpr AttentionKernels attention_kernels() {
  AttentionKernels all = row_kernels_of_attention<Floats256>();
  all.kv[0].scores = float_scores<float>;
  all.kv[1].scores = float_scores<std::uint16_t>;
  all.kv[2].scores = int8_scores;
  all.kv[0].values = weighted_values<float>;
  all.kv[1].values = weighted_values<std::uint16_t>;
  all.kv[2].values = weighted_values<std::uint8_t>;
  all.columns_in_order = 64;
  return all;
}

constexpr AttentionKernels kAttention = attention_kernels();
constexpr PackedKernels kPacked = {.scores = {wide_scores<8>, wide_scores<4>, wide_scores<2>},
                                   .values = {wide_values<8>, wide_values<4>, wide_values<2>},
                                   .chains = wide_chains,
                                   .fold = plain::fold,
                                   .rescale = plain::rescale,
                                   .encode = plain::encode_packed,
                                   .rotate = plain::rotate_head};

MatmulKernels matmuls() {
  MatmulKernels kernels = int_matmuls_avx2();
  kernels.f32 = multiply_floats<FloatLanes, float>;
  kernels.f16 = multiply_floats<FloatLanes, F16>;
  kernels.bf16 = multiply_floats<FloatLanes, Bf16>;
  kernels.float_tile = "3x2";
  return kernels;
}

}  // namespace

const KernelLevel& level_avx2() {
  static const MatmulKernels kMatmuls = matmuls();
  static const KernelLevel kLevel = {&kMatmuls, &kRowKernels<Rows256>, &kAttention, &kPacked,
                                     &kDeltaKernels<DeltaLanes>};
  return kLevel;
}

}  // namespace leq::cpu
