// AVX2's kernels, but bytes are multiplied in quads by AVX-VNNI's vpdpbusd: int8 keys of attention,
// and matmuls of many tokens.
#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/x86/blocks.h"
#include "backend/cpu/kernels/x86/lanes_avx2.h"
#include "backend/cpu/kernels/x86/prefetch.h"
#include "base/cpu_features.h"

namespace leq::cpu {
namespace {

// Key blocks per pass: few queries need more chains of sums, from more keys, to hide latency.
constexpr int blocks_at_once(int queries) { return queries == 1 ? 4 : queries == 2 ? 2 : 1; }

// score = s_q * fma(s, float(sum u q), m * float(sum q)), for blocks [block, block + B) of 16 keys.
template <int R, int B>
void quad_blocks(const ScoreTile& tile, int block, const Prefetcher& ahead) noexcept {
  const std::int64_t quads = (tile.dims + 3) / 4;
  const auto* keys = static_cast<const std::uint8_t*>(tile.keys) + block * quads * 64;
  __m256i sums[R][2 * B];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < 2 * B; ++i) sums[r][i] = _mm256_setzero_si256();
  }
  for (std::int64_t quad = 0; quad < quads; ++quad) {
    ahead.step(quad);
    __m256i query[R];
    for (int r = 0; r < R; ++r) {
      std::int32_t four;
      __builtin_memcpy(&four, tile.codes[r] + quad * 4, sizeof four);
      query[r] = _mm256_set1_epi32(four);
    }
    for (int i = 0; i < 2 * B; ++i) {
      const auto* at = keys + (i / 2 * quads + quad) * 64 + i % 2 * 32;
      const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      for (int r = 0; r < R; ++r) {
        sums[r][i] = _mm256_dpbusd_avx_epi32(sums[r][i], codes, query[r]);
      }
    }
  }
  for (int i = 0; i < 2 * B; ++i) {
    const int j = block * kKeyBlock + i * 8;
    const __m256 scale = Lanes256::load(tile.scales + j), minimum = Lanes256::load(tile.minima + j);
    for (int r = 0; r < R; ++r) {
      const __m256 low = _mm256_mul_ps(minimum, _mm256_set1_ps(tile.code_sum[r]));
      const __m256 value = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(sums[r][i]), low);
      _mm256_storeu_ps(tile.scores[r] + j,
                       _mm256_mul_ps(_mm256_set1_ps(tile.code_scale[r]), value));
    }
  }
}

template <int R>
void quad_rows(const ScoreTile& tile) noexcept {
  constexpr int kBlocks = blocks_at_once(R);
  const std::int64_t quads = (tile.dims + 3) / 4;
  int block = tile.first_block;
  Prefetcher ahead(tile.ahead, turns(tile, kBlocks) * quads);
  for (; block + kBlocks <= tile.last_block; block += kBlocks) {
    quad_blocks<R, kBlocks>(tile, block, ahead);
    ahead = ahead.after(quads);
  }
  for (; block < tile.last_block; ++block) quad_blocks<R, 1>(tile, block, ahead);
}

void quad_scores(const ScoreTile& tile) noexcept {
  using Rows = void (*)(const ScoreTile&) noexcept;
  constexpr Rows kRows[kQueryTile] = {quad_rows<1>, quad_rows<2>, quad_rows<3>,
                                      quad_rows<4>, quad_rows<5>, quad_rows<6>};
  kRows[tile.queries - 1](tile);
}

struct DotLanes : Lanes256 {
  // c += products of u8 x s8 quads, in the short encoding, which does not need AVX-512.
  static inline __attribute__((always_inline)) void dot(Ints& c, Ints u8, Ints s8) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(u8), "x"(s8));
  }
};

// Tiles of six tokens: 12 of 16 registers hold sums.
template <class Source, Unsigned kSide>
using Dots = DotProducts<DotLanes, 6, Source, kSide>;

struct AvxVnni {
  using Signed = Dots<PanelCodes<DotLanes>, Unsigned::inputs>;
  using Bytes = Dots<PanelCodes<DotLanes>, Unsigned::codes>;
  template <int kBits>
  using Bits = Dots<UnpackedCodes<DotLanes, kBits>, Unsigned::codes>;
  static constexpr Start kSigned = Start::weights;
  static constexpr Start kBytes = Start::zeros;
};

MatmulKernels matmuls() {
  MatmulKernels kernels = block_kernels<AvxVnni>(Isa::avxvnni, "6x16");
  const MatmulKernels& avx2 = *level_avx2().matmul;
  kernels.f32 = avx2.f32;
  kernels.f16 = avx2.f16;
  kernels.bf16 = avx2.bf16;
  kernels.super = avx2.super;
  kernels.float_tile = avx2.float_tile;
  return kernels;
}

AttentionKernels with_quads() {
  AttentionKernels kernels = *level_avx2().attention;
  kernels.kv[2].scores = quad_scores;
  return kernels;
}

}  // namespace

const KernelLevel& level_avxvnni() {
  static const MatmulKernels kMatmuls = matmuls();
  static const AttentionKernels kAttention = with_quads();
  const KernelLevel& avx2 = level_avx2();
  static const KernelLevel kLevel = {&kMatmuls, avx2.rows, &kAttention, avx2.packed, avx2.delta};
  return kLevel;
}

}  // namespace leq::cpu
