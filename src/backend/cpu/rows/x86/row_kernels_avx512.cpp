// Row kernels with 512-bit registers: sixteen of them are the 256 lanes of a norm's sum.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/rows/row_kernel_tables.h"
#include "backend/cpu/rows/x86/exp_avx512.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kLanes = 16;

__mmask16 tail_mask(std::int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
}

// One pass over n columns: whole registers, then the masked rest.
template <class Step>
void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) step(k, static_cast<__mmask16>(0xffffu));
  if (k < n) step(k, tail_mask(n - k));
}

constexpr int kNormRegisters = 16;

// Lanes + 16 * kCount of a norm's n columns; where there are no more columns, they are +0.
template <int kCount>
void add_upper(std::int64_t n, __m512 (&sums)[kNormRegisters]) {
  if (n <= kCount * kLanes) return;
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) sums[i] = _mm512_add_ps(sums[i], sums[i + kCount]);
}

// step(sums of sixteen lanes, their columns, a mask of those that exist) over a row, then lanes
// +128, +64, ... +1.
template <class Step>
float norm_sum(const float* x, std::int64_t n, Step step) {
  __m512 sums[kNormRegisters];
#pragma GCC unroll 16
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  std::int64_t k = 0;
  for (; k + kNormRegisters * kLanes <= n; k += kNormRegisters * kLanes) {
#pragma GCC unroll 16
    for (int i = 0; i < kNormRegisters; ++i) {
      sums[i] = step(sums[i], _mm512_loadu_ps(x + k + i * kLanes), static_cast<__mmask16>(0xffffu));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kNormRegisters; ++i) {
    const std::int64_t left = n - k - i * kLanes;
    if (left <= 0) break;
    const __mmask16 mask = tail_mask(left);
    sums[i] = step(sums[i], _mm512_maskz_loadu_ps(mask, x + k + i * kLanes), mask);
  }
  add_upper<8>(n, sums);
  add_upper<4>(n, sums);
  add_upper<2>(n, sums);
  add_upper<1>(n, sums);
  return add_lanes(sums[0]);
}

float reciprocal_root(float total, float eps, std::int64_t n) {
  const float mean = total / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void add(const float* y, std::int64_t n, float* x) noexcept {
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 total =
        _mm512_add_ps(_mm512_maskz_loadu_ps(mask, x + k), _mm512_maskz_loadu_ps(mask, y + k));
    _mm512_mask_storeu_ps(x + k, mask, total);
  });
}

void multiply(const float* y, std::int64_t n, float* x) noexcept {
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 product =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + k), _mm512_maskz_loadu_ps(mask, y + k));
    _mm512_mask_storeu_ps(x + k, mask, product);
  });
}

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) noexcept {
  const float squares =
      norm_sum(x, n, [](__m512 sum, __m512 v, __mmask16) { return _mm512_fmadd_ps(v, v, sum); });
  const __m512 r = _mm512_set1_ps(reciprocal_root(squares, eps, n));
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + k), r);
    _mm512_mask_storeu_ps(out + k, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, gain + k)));
  });
}

void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total =
      norm_sum(x, n, [](__m512 sum, __m512 v, __mmask16) { return _mm512_add_ps(sum, v); });
  const __m512 mean = _mm512_set1_ps(total / static_cast<float>(n));
  const float squares = norm_sum(x, n, [mean](__m512 sum, __m512 v, __mmask16 mask) {
    const __m512 difference = _mm512_maskz_sub_ps(mask, v, mean);
    return _mm512_fmadd_ps(difference, difference, sum);
  });
  const __m512 r = _mm512_set1_ps(reciprocal_root(squares, eps, n));
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 difference = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + k), mean);
    const __m512 scaled =
        _mm512_mul_ps(_mm512_mul_ps(difference, r), _mm512_maskz_loadu_ps(mask, gain + k));
    _mm512_mask_storeu_ps(out + k, mask,
                          _mm512_add_ps(scaled, _mm512_maskz_loadu_ps(mask, beta + k)));
  });
}

// x / (1 + exp(-x)), times up
void swiglu(const float* gate, const float* up, std::int64_t n, float* out) noexcept {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 sign = _mm512_set1_ps(-0.0f);
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 v = _mm512_maskz_loadu_ps(mask, gate + k);
    const __m512 silu = _mm512_div_ps(v, _mm512_add_ps(one, exp_lanes(_mm512_xor_ps(v, sign))));
    _mm512_mask_storeu_ps(out + k, mask, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + k)));
  });
}

// x / (1 + exp(-gate))
void gate(const float* gate, std::int64_t n, float* x) noexcept {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 sign = _mm512_set1_ps(-0.0f);
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 e = exp_lanes(_mm512_xor_ps(_mm512_maskz_loadu_ps(mask, gate + k), sign));
    const __m512 v = _mm512_maskz_loadu_ps(mask, x + k);
    _mm512_mask_storeu_ps(x + k, mask, _mm512_div_ps(v, _mm512_add_ps(one, e)));
  });
}

// x / (1 + exp(-2u)), u = scale * fma(cubic * (x * x), x, x)
void gelu(const float* x, std::int64_t n, float* out) noexcept {
  const __m512 one = _mm512_set1_ps(1.0f);
  for_registers(n, [=](std::int64_t k, __mmask16 mask) {
    const __m512 v = _mm512_maskz_loadu_ps(mask, x + k);
    const __m512 cubic = _mm512_mul_ps(_mm512_set1_ps(kGeluCubic), _mm512_mul_ps(v, v));
    const __m512 u = _mm512_mul_ps(_mm512_set1_ps(kGeluScale), _mm512_fmadd_ps(cubic, v, v));
    const __m512 e = exp_lanes(_mm512_mul_ps(_mm512_set1_ps(-2.0f), u));
    _mm512_mask_storeu_ps(out + k, mask, _mm512_div_ps(v, _mm512_add_ps(one, e)));
  });
}

// Magnitudes compare like their bits, and infinity and NaN lie above all numbers.
float absmax(const float* x, std::int64_t n) noexcept {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for_registers(n, [&](std::int64_t k, __mmask16 mask) {
    const __m512i bits = _mm512_maskz_loadu_epi32(mask, x + k);
    largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, magnitude));
  });
  return __builtin_bit_cast(float, _mm512_reduce_max_epu32(largest));
}

// Codes of 64 numbers leave in one store: what reads a line soon after four smaller stores waits
// until these have reached the cache. Bytes are summed as unsigned ones, code + 128.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const __m512 factor = _mm512_set1_ps(inv);
  const __m512 low = _mm512_set1_ps(-127.0f);
  const __m512 high = _mm512_set1_ps(127.0f);
  const auto rounded = [=](__m512 v) {
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(v, factor), low), high));
  };
  // Packing takes 16 bytes of each register in turn.
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
  for_registers(n - first, [&](std::int64_t k, __mmask16 mask) {
    const __m512i code = rounded(_mm512_maskz_loadu_ps(mask, x + first + k));
    last_sums = _mm512_add_epi32(last_sums, code);
    _mm512_mask_cvtepi32_storeu_epi8(codes + first + k, mask,
                                     _mm512_add_epi32(code, _mm512_set1_epi32(offset)));
  });
  const std::int64_t sum = _mm512_reduce_add_epi64(sums) - 128 * first;
  return static_cast<std::int32_t>(sum) + _mm512_reduce_add_epi32(last_sums);
}

constexpr RowKernels kKernels = {.add = add,
                                 .multiply = multiply,
                                 .rms_norm = rms_norm,
                                 .layer_norm = layer_norm,
                                 .swiglu = swiglu,
                                 .gate = gate,
                                 .gelu = gelu,
                                 .absmax = absmax,
                                 .quantize = quantize};

}  // namespace

const RowKernels& row_kernels_avx512() { return kKernels; }

}  // namespace leq::cpu
