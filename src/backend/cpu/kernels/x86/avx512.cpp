// The AVX-512 kernels but integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/attention_lanes.h"
#include "backend/cpu/kernels/delta_lanes.h"
#include "backend/cpu/kernels/float_lanes.h"
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/portable.inc"
#include "backend/cpu/kernels/row_lanes.h"
#include "backend/cpu/kernels/x86/int8_scores_avx512.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// Rows.

constexpr int kNormRegisters = 16;

// Adds lanes of a norm's sum that are 16 * kCount apart, unless the upper lanes are empty (+0).
template <int kCount>
void add_upper(std::int64_t n, __m512 (&sums)[kNormRegisters]) {
  if (n <= kCount * Floats512::kLanes) return;
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i] = _mm512_add_ps(sums[i], sums[i + kCount]);
}

// Calls step(sums of sixteen lanes, their columns, mask of valid columns) over a row; then adds
// lanes 128, 64, ... 1 apart.
template <class Step>
float norm_sum(const float* x, std::int64_t n, Step step) {
  __m512 sums[kNormRegisters];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  std::int64_t k = 0;
  for (; k + kNormRegisters * Floats512::kLanes <= n; k += kNormRegisters * Floats512::kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kNormRegisters; ++i) {
      sums[i] =
          step(sums[i], _mm512_loadu_ps(x + k + i * Floats512::kLanes), Floats512::Mask{0xffff});
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kNormRegisters; ++i) {
    const std::int64_t left = n - k - i * Floats512::kLanes;
    if (left <= 0) break;
    const __mmask16 mask = Floats512::first_lanes(left);
    sums[i] = step(sums[i], _mm512_maskz_loadu_ps(mask, x + k + i * Floats512::kLanes), mask);
  }
  add_upper<8>(n, sums);
  add_upper<4>(n, sums);
  add_upper<2>(n, sums);
  add_upper<1>(n, sums);
  return Floats512::total({sums[0]});
}

// The codes of 64 numbers are written by one store, because a load soon after four smaller stores
// stalls until these reach the cache. Bytes are summed as unsigned codes + 128.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const __m512 factor = _mm512_set1_ps(inv);
  const __m512 low = _mm512_set1_ps(-127.0f);
  const __m512 high = _mm512_set1_ps(127.0f);
  const auto rounded = [=](__m512 v) {
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(v, factor), low), high));
  };
  // Pack instructions interleave 16-byte parts of the registers; this restores the order.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i shift = _mm512_set1_epi8(static_cast<char>(offset));
  const __m512i flip = _mm512_set1_epi8(-128);
  __m512i sums = _mm512_setzero_si512(), last_sums = sums;
  std::int64_t first = 0;
  for (; first + 64 <= n; first += 64) {
    const float* at = x + first;
    const __m512i front =
        _mm512_packs_epi32(rounded(_mm512_loadu_ps(at)), rounded(_mm512_loadu_ps(at + 16)));
    const __m512i back =
        _mm512_packs_epi32(rounded(_mm512_loadu_ps(at + 32)), rounded(_mm512_loadu_ps(at + 48)));
    const __m512i all = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(front, back));
    _mm512_storeu_si512(codes + first, _mm512_add_epi8(all, shift));
    const __m512i bytes = _mm512_xor_si512(all, flip);
    sums = _mm512_add_epi64(sums, _mm512_sad_epu8(bytes, _mm512_setzero_si512()));
  }
  for_registers<Floats512>(n - first, [&](std::int64_t k, auto lanes) {
    const __m512i code = rounded(lanes.load(x + first + k));
    last_sums = _mm512_add_epi32(last_sums, code);
    _mm512_mask_cvtepi32_storeu_epi8(codes + first + k, Floats512::first_lanes(n - first - k),
                                     _mm512_add_epi32(code, _mm512_set1_epi32(offset)));
  });
  const std::int64_t sum = _mm512_reduce_add_epi64(sums) - 128 * first;
  return static_cast<std::int32_t>(sum) + _mm512_reduce_add_epi32(last_sums);
}

struct Rows512 : Floats512 {
  typedef std::uint32_t Words __attribute__((vector_size(64)));
  template <class Step>
  static float norm_sum(const float* x, std::int64_t n, Step step) {
    return cpu::norm_sum(x, n, step);
  }
  static std::uint32_t most_of(Words words) {
    return _mm512_reduce_max_epu32(__builtin_bit_cast(__m512i, words));
  }
  static constexpr auto quantize = cpu::quantize;
};

// Gated DeltaNet: registers suffice for the sums of two tokens.
struct DeltaLanes : Floats512 {
  static constexpr bool kManyRegisters = true;
};

struct FloatLanes : Floats512 {
  static constexpr int kTokens = 6, kOutputs = 4, kOutputsAlone = 4, kFetch = 1024;
};

// Attention. A register holds one dimension of 16 keys, or 16 dimensions of one value; up to 6
// queries share each load.

__mmask16 low_lanes(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

template <class Number>
__m512 load16(const Number* x) {
  return Floats512::load(x);
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

// Packed codes of the cache. A shift per lane and a look-up among sixteen numbers convert codes to
// floats; up to 6 queries share the converted codes.

// The codes in the low bits of each lane, converted to floats; a look-up uses four bits.
template <int bits>
__m512 low_codes(__m512i lanes) {
  if constexpr (bits == 8) return _mm512_cvtepi32_ps(lanes);
  const __m512 numbers = bits == 4
                             ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
                             : _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  return _mm512_permutexvar_ps(lanes, numbers);
}

__m512i bytes16(const std::uint8_t* at) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// Scores of blocks [block, block + B) of 16 keys for R queries. `block` is even if B is 2, and 0 if
// B is 4, so that blocks that are packed into the same bytes share loads.
template <int bits, int R, int B>
void score_some(const PackedScoreTile& tile, int block) noexcept {
  constexpr int kBlocks = 8 / bits;                     // blocks of 16 keys in a row of 16 bytes
  constexpr int kRows = B > kBlocks ? B / kBlocks : 1;  // rows of 16 bytes
  constexpr bool kWhole = B % kBlocks == 0;             // the blocks fill whole rows
  const std::int64_t dims = tile.dims;
  const std::uint8_t* rows[kRows];
  const __m128i begin = _mm_cvtsi32_si128(block % kBlocks * bits);
  const float* query[R][B];
  __m512 sums[R][B];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) rows[i] = tile.keys + (block / kBlocks + i) * dims * 16;
#pragma GCC unroll 4
  for (int b = 0; b < B; ++b) {
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      query[r][b] = tile.query[r][(block + b) / 2];
      sums[r][b] = _mm512_set1_ps(tile.start[r][(block + b) / 2]);
    }
  }
  Prefetcher ahead(block == tile.first_block ? tile.ahead : Ahead{}, dims);
  for (std::int64_t c = 0; c < dims; ++c) {
    __m512 key[B];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      __m512i lanes = bytes16(rows[i] + c * 16);
      if constexpr (!kWhole) lanes = _mm512_srl_epi32(lanes, begin);
#pragma GCC unroll 4
      for (int n = 0; n < B / kRows; ++n) {
        key[i * (B / kRows) + n] = low_codes<bits>(
            n == 0 ? lanes : _mm512_srli_epi32(lanes, static_cast<unsigned>(n * bits)));
      }
    }
    ahead.step(c);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b) {
        sums[r][b] = _mm512_fmadd_ps(_mm512_set1_ps(query[r][b][c]), key[b], sums[r][b]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      _mm512_storeu_ps(tile.scores[r] + (block + b) * kKeyBlock, sums[r][b]);
    }
  }
}

template <int bits, int R>
void score_rows(const PackedScoreTile& tile) noexcept {
  int block = tile.first_block;
  if (block == 0 && tile.last_block == 4) return score_some<bits, R, 4>(tile, 0);
  if (block % 2 == 1 && block < tile.last_block) score_some<bits, R, 1>(tile, block++);
  for (; block + 2 <= tile.last_block; block += 2) score_some<bits, R, 2>(tile, block);
  for (; block < tile.last_block; ++block) score_some<bits, R, 1>(tile, block);
}

template <int bits>
void wide_scores(const PackedScoreTile& tile) noexcept {
  using Rows = void (*)(const PackedScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {score_rows<bits, 1>, score_rows<bits, 2>,
                                      score_rows<bits, 3>, score_rows<bits, 4>,
                                      score_rows<bits, 5>, score_rows<bits, 6>};
  kRows[tile.queries - 1](tile);
}

// Unpacks the codes of 16 channels, one to a lane.
template <int bits>
__m512 channels16(const std::uint8_t* at) {
  if constexpr (bits == 8) return low_codes<8>(bytes16(at));
  if constexpr (bits == 4) {
    std::int64_t both;
    __builtin_memcpy(&both, at, sizeof both);
    const __m512i digits =
        _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    return low_codes<4>(_mm512_srlv_epi32(_mm512_set1_epi64(both), digits));
  }
  std::int32_t all;
  __builtin_memcpy(&all, at, sizeof all);
  const __m512i digits =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return low_codes<2>(_mm512_srlv_epi32(_mm512_set1_epi32(all), digits));
}

// Adds to channels [column, column + 16 D) of R queries; if D is 1 the register may be masked.
template <int bits, int R, int D>
void value_some(const PackedValueTile& tile, int column, __mmask16 mask) noexcept {
  const std::uint8_t* values = tile.values + column / 16 * 2 * bits;
  std::int64_t group[D];
  __m512 sums[R][D];
#pragma GCC unroll 8
  for (int i = 0; i < D; ++i) {
    group[i] = (column + i * 16) / tile.group * kPageColumns;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      sums[r][i] = _mm512_maskz_loadu_ps(mask, tile.out[r] + column + i * 16);
    }
  }
  Prefetcher ahead(share_of(tile.ahead, column, column + 16 * D, tile.dims),
                   tile.last - tile.first);
  for (std::int64_t j = tile.first; j < tile.last; ++j) {
    const std::uint8_t* at = values + j * tile.row_bytes;
    ahead.step(j - tile.first);
    __m512 value[D];
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) value[i] = channels16<bits>(at + i * 2 * bits);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int i = 0; i < D; ++i) {
        const __m512 weight = _mm512_set1_ps(tile.weights[r][group[i] + j]);
        sums[r][i] = _mm512_fmadd_ps(weight, value[i], sums[r][i]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < D; ++i) {
      _mm512_mask_storeu_ps(tile.out[r] + column + i * 16, mask, sums[r][i]);
    }
  }
}

template <int bits, int R>
void value_rows(const PackedValueTile& tile) noexcept {
  constexpr __mmask16 kAll = 0xffffu;
  int column = 0;
  if constexpr (R <= 2) {  // few chains need eight registers of columns to hide latency
    for (; column + 128 <= tile.dims; column += 128) value_some<bits, R, 8>(tile, column, kAll);
  }
  for (; column + 64 <= tile.dims; column += 64) value_some<bits, R, 4>(tile, column, kAll);
  for (; column + 32 <= tile.dims; column += 32) value_some<bits, R, 2>(tile, column, kAll);
  for (; column < tile.dims; column += 16) {
    value_some<bits, R, 1>(tile, column, low_lanes(tile.dims - column));
  }
}

template <int bits>
void wide_values(const PackedValueTile& tile) noexcept {
  using Rows = void (*)(const PackedValueTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {value_rows<bits, 1>, value_rows<bits, 2>,
                                      value_rows<bits, 3>, value_rows<bits, 4>,
                                      value_rows<bits, 5>, value_rows<bits, 6>};
  kRows[tile.queries - 1](tile);
}

// Transposes a matrix of 16 x 16 numbers.
void transpose(__m512 (&x)[16]) {
  __m512 a[16], b[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    a[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  const auto low = [](__m512 p, __m512 q) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(p), _mm512_castps_pd(q)));
  };
  const auto high = [](__m512 p, __m512 q) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(p), _mm512_castps_pd(q)));
  };
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // b[i + k] has columns k, 4 + k, ... of rows i to i + 3
    b[i] = low(a[i], a[i + 2]);
    b[i + 1] = high(a[i], a[i + 2]);
    b[i + 2] = low(a[i + 1], a[i + 3]);
    b[i + 3] = high(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512 even0 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0x88);
    const __m512 even1 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0x88);
    const __m512 odd0 = _mm512_shuffle_f32x4(b[k], b[4 + k], 0xdd);
    const __m512 odd1 = _mm512_shuffle_f32x4(b[8 + k], b[12 + k], 0xdd);
    x[k] = _mm512_shuffle_f32x4(even0, even1, 0x88);
    x[8 + k] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    x[4 + k] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    x[12 + k] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
}

// A register holds one chain in each lane; queries share the transposed rows.
template <int R>
void chain_rows(const ChainTile& tile) noexcept {
  __m512 sums[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_ps();
  for (int first = 0; first < tile.dims; first += 16) {
    const __mmask16 mask = low_lanes(tile.dims - first);
    __m512 x[16];
    for (int i = 0; i < 16; ++i) {
      x[i] = i < tile.count ? load16(tile.rows[i] + first, mask) : _mm512_setzero_ps();
    }
    transpose(x);
    const int last = tile.dims - first < 16 ? tile.dims - first : 16;
    for (int c = 0; c < last; ++c) {
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        sums[r] = _mm512_fmadd_ps(_mm512_set1_ps(tile.query[r][first + c]), x[c], sums[r]);
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) _mm512_mask_storeu_ps(tile.z[r], low_lanes(tile.count), sums[r]);
}

void wide_chains(const ChainTile& tile) noexcept {
  using Rows = void (*)(const ChainTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {chain_rows<1>, chain_rows<2>, chain_rows<3>,
                                      chain_rows<4>, chain_rows<5>, chain_rows<6>};
  kRows[tile.queries - 1](tile);
}

void wide_fold(const float* query, const std::uint16_t* scales, int dims, float* out) noexcept {
  for (int c = 0; c < dims; c += 16) {
    const __mmask16 mask = low_lanes(dims - c);
    const __m512 q = _mm512_maskz_loadu_ps(mask, query + c);
    _mm512_mask_storeu_ps(out + c, mask, _mm512_mul_ps(q, load16(scales + c, mask)));
  }
}

constexpr AttentionKernels attention_kernels() {
  AttentionKernels all = row_kernels_of_attention<Floats512>();
  all.kv[0].scores = float_scores<float>;
  all.kv[1].scores = float_scores<std::uint16_t>;
  all.kv[2].scores = int8_scores<PairProducts>;
  all.kv[0].values = weighted_values<float>;
  all.kv[1].values = weighted_values<std::uint16_t>;
  all.kv[2].values = weighted_values<std::uint8_t>;
  all.columns_in_order = 128;
  return all;
}

constexpr AttentionKernels kAttention = attention_kernels();
constexpr PackedKernels kPacked = {.scores = {wide_scores<8>, wide_scores<4>, wide_scores<2>},
                                   .values = {wide_values<8>, wide_values<4>, wide_values<2>},
                                   .chains = wide_chains,
                                   .fold = wide_fold,
                                   .rescale = plain::rescale,
                                   .encode = plain::encode_packed,
                                   .rotate = plain::rotate_head};

MatmulKernels matmuls() {
  MatmulKernels kernels = int_matmuls_avx512();
  kernels.f32 = multiply_floats<FloatLanes, float>;
  kernels.f16 = multiply_floats<FloatLanes, F16>;
  kernels.bf16 = multiply_floats<FloatLanes, Bf16>;
  kernels.float_tile = "6x4";
  return kernels;
}

}  // namespace

const KernelLevel& level_avx512() {
  static const MatmulKernels kMatmuls = matmuls();
  static const KernelLevel kLevel = {&kMatmuls, &kRowKernels<Rows512>, &kAttention, &kPacked,
                                     &kDeltaKernels<DeltaLanes>};
  return kLevel;
}

}  // namespace leq::cpu
