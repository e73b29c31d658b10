// The AVX-512 kernels but integer matmuls.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/delta_lanes.h"
#include "backend/cpu/kernels/float_lanes.h"
#include "backend/cpu/kernels/levels.h"
#include "backend/cpu/kernels/row_lanes.h"
#include "backend/cpu/kernels/x86/attention_lanes.h"
#include "backend/cpu/kernels/x86/int8_scores.h"
#include "backend/cpu/kernels/x86/lanes_avx512.h"
#include "backend/cpu/kernels/x86/prefetch.h"

namespace leq::cpu {
namespace {

// Rows.

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
  static std::uint32_t most_of(Words words) {
    return _mm512_reduce_max_epu32(__builtin_bit_cast(__m512i, words));
  }
  static constexpr auto quantize = cpu::quantize;
};

struct FloatLanes : Floats512 {
  static constexpr int kTokens = 6, kOutputs = 4, kOutputsAlone = 4, kFetch = 1024;
};

// Attention. A register holds one dimension of 16 keys, or 16 dimensions of one value; up to 6
// queries share each load.

void wide_fold(const float* query, const std::uint16_t* scales, int dims, float* out) noexcept {
  for (int c = 0; c < dims; c += 16) {
    const __mmask16 mask = Floats512::first_lanes(dims - c);
    const __m512 q = _mm512_maskz_loadu_ps(mask, query + c);
    _mm512_mask_storeu_ps(
        out + c, mask,
        _mm512_mul_ps(q, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, scales + c))));
  }
}

constexpr AttentionKernels kAttention =
    attention_kernels_of<Lanes512>(int8_scores<PairProducts<Lanes512>>);

constexpr PackedKernels packed_kernels() {
  PackedKernels kernels = packed_kernels_of<Lanes512>();
  kernels.fold = wide_fold;
  return kernels;
}
constexpr PackedKernels kPacked = packed_kernels();

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
                                     &kDeltaKernels<Floats512>};
  return kLevel;
}

}  // namespace leq::cpu
