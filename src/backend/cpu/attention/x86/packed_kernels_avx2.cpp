// Kernels of packed codes with 256-bit registers: two of them replace one 512-bit register. Up to 3
// queries share the codes of each load.
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

constexpr int kRowsAtOnce = 3;

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
  if (there >= 8) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
  std::uint16_t eight[8] = {};
  for (int i = 0; i < there; ++i) eight[i] = row[i];
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(eight)));
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

constexpr PackedKernels kWide = {.scores = {wide_scores<8>, wide_scores<4>, wide_scores<2>},
                                 .values = {wide_values<8>, wide_values<4>, wide_values<2>},
                                 .chains = wide_chains,
                                 .fold = fold,
                                 .rescale = rescale,
                                 .encode = encode_packed,
                                 .rotate = rotate_head};

}  // namespace

const PackedKernels& packed_kernels_avx2() { return kWide; }

}  // namespace leq::cpu
