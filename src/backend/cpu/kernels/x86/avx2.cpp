// The AVX2 kernels but integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/delta_lanes.h"
#include "backend/cpu/kernels/float_lanes.h"
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/row_lanes.h"
#include "backend/cpu/kernels/x86/attention_lanes.h"
#include "backend/cpu/kernels/x86/int8_scores.h"
#include "backend/cpu/kernels/x86/lanes_avx2.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// Rows.

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
  static std::uint32_t most_of(Words words) {
    std::uint32_t most = 0;
    for (int lane = 0; lane < kLanes; ++lane) most = words[lane] > most ? words[lane] : most;
    return most;
  }
  static constexpr auto quantize = cpu::quantize;
};

// Float matmuls: 12 accumulators for several tokens; 8 for one, whose weights are read as four
// streams.
struct FloatLanes : Floats256 {
  static constexpr int kTokens = 3, kOutputs = 2, kOutputsAlone = 4, kFetch = 0;
};

// Attention. Two registers hold one dimension of 16 keys, or 16 dimensions of one value; up to 6
// queries share each load.

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

// If all quads of the query fit into `query`, the caller has already filled it.
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
    for (int r = 0; r < R; ++r) finish_scores<Lanes256>(tile, block, i, r, sums[r][i]);
  }
}

template <int R>
void int8_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = blocks_at_once<Floats256>(R);
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

void int8_scores(const ScoreTile& tile) noexcept {
  using Rows = void (*)(const ScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {int8_rows<1>, int8_rows<2>, int8_rows<3>,
                                      int8_rows<4>, int8_rows<5>, int8_rows<6>};
  kRows[tile.queries - 1](tile);
}

constexpr AttentionKernels kAttention = attention_kernels_of<Lanes256>(int8_scores);
constexpr PackedKernels kPacked = packed_kernels_of<Lanes256>();

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
                                     &kDeltaKernels<Floats256>};
  return kLevel;
}

}  // namespace leq::cpu
