// Row kernels with 512-bit registers; sixteen registers hold the 256 lanes of a norm's sum.
#include "backend/cpu/rows/row_lanes.h"
#include "backend/cpu/rows/x86/floats_avx512.h"

namespace leq::cpu {
namespace {

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
  return add_lanes(sums[0]);
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

}  // namespace

const RowKernels& row_kernels_avx512() { return kRowKernels<Rows512>; }

}  // namespace leq::cpu
