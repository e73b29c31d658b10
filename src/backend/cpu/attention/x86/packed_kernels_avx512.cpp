// Kernels of packed codes with 512-bit registers. A shift per lane and a look-up among sixteen
// numbers convert codes to floats; up to 6 queries share the converted codes.
#include "backend/cpu/attention/packed_kernels.h"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/attention/attention_kernel_tables.h"
#include "backend/cpu/attention/x86/prefetcher.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/attention/packed_kernels.inc"

__mmask16 low_lanes(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

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

__m512 halves16(const std::uint16_t* at, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
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
      x[i] = i < tile.count ? halves16(tile.rows[i] + first, mask) : _mm512_setzero_ps();
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
    _mm512_mask_storeu_ps(out + c, mask, _mm512_mul_ps(q, halves16(scales + c, mask)));
  }
}

constexpr PackedKernels kWide = {.scores = {wide_scores<8>, wide_scores<4>, wide_scores<2>},
                                 .values = {wide_values<8>, wide_values<4>, wide_values<2>},
                                 .chains = wide_chains,
                                 .fold = wide_fold,
                                 .rescale = rescale,
                                 .encode = encode_packed,
                                 .rotate = rotate_head};

}  // namespace

const PackedKernels& packed_kernels_avx512() { return kWide; }

}  // namespace leq::cpu
