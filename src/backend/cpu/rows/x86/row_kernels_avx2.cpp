// Row kernels with 256-bit registers.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/rows/row_kernel_tables.h"
#include "backend/cpu/rows/x86/exp_avx2.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kHalf = 8;  // lanes of a register

// All ones in the lanes below n.
__m256i tail_mask(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

// How a register meets memory: whole, or in the lanes that exist. (A store under a mask of all
// lanes costs AMD's processors much more than a plain one.)
struct Whole {
  static __m256 load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
};
struct Tail {
  __m256i mask;
  __m256 load(const float* from) const { return _mm256_maskload_ps(from, mask); }
  void store(float* to, __m256 x) const { _mm256_maskstore_ps(to, mask, x); }
};

// One pass over n columns, a register at a time: step(first column, Whole or Tail).
template <class Step>
void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + kHalf <= n; k += kHalf) step(k, Whole{});
  if (k < n) step(k, Tail{tail_mask(n - k)});
}

// The 256 lanes of a norm's sum are 32 registers, twice as many as there are: a quarter of the
// lanes after the other, each in a pass over its own columns.
struct Quarter {
  static constexpr int kRegisters = 8;
  __m256 sums[kRegisters];
};

// step(sums of eight lanes, their columns, a mask of those that exist) in the 64 lanes from
// `first`.
template <class Step>
Quarter sum_quarter(const float* x, std::int64_t first, std::int64_t n, Step step) {
  constexpr std::int64_t kColumns = Quarter::kRegisters * kHalf;
  __m256 sums[Quarter::kRegisters];
#pragma GCC unroll 8
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  std::int64_t k = first;
  for (; k + kColumns <= n; k += 4 * kColumns) {
#pragma GCC unroll 8
    for (int i = 0; i < Quarter::kRegisters; ++i) {
      sums[i] = step(sums[i], _mm256_loadu_ps(x + k + i * kHalf), _mm256_set1_epi32(-1));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) {
    const std::int64_t left = n - k - i * kHalf;
    if (left <= 0) break;
    const __m256i mask = tail_mask(left);
    sums[i] = step(sums[i], _mm256_maskload_ps(x + k + i * kHalf, mask), mask);
  }
  return {{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]}};
}

Quarter operator+(const Quarter& a, const Quarter& b) {
  Quarter both;
#pragma GCC unroll 8
  for (int i = 0; i < Quarter::kRegisters; ++i) both.sums[i] = _mm256_add_ps(a.sums[i], b.sums[i]);
  return both;
}

// Lanes +128, +64, ... +1; quarters past the last column are +0 and left out.
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
  return add_lanes(low, high);
}

float reciprocal_root(float total, float eps, std::int64_t n) {
  const float mean = total / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void add(const float* y, std::int64_t n, float* x) noexcept {
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 total = _mm256_add_ps(lanes.load(x + k), lanes.load(y + k));
    lanes.store(x + k, total);
  });
}

void multiply(const float* y, std::int64_t n, float* x) noexcept {
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 product = _mm256_mul_ps(lanes.load(x + k), lanes.load(y + k));
    lanes.store(x + k, product);
  });
}

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) noexcept {
  const float squares =
      norm_sum(x, n, [](__m256 sum, __m256 v, __m256i) { return _mm256_fmadd_ps(v, v, sum); });
  const __m256 r = _mm256_set1_ps(reciprocal_root(squares, eps, n));
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 v = _mm256_mul_ps(lanes.load(x + k), r);
    lanes.store(out + k, _mm256_mul_ps(v, lanes.load(gain + k)));
  });
}

void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total =
      norm_sum(x, n, [](__m256 sum, __m256 v, __m256i) { return _mm256_add_ps(sum, v); });
  const __m256 mean = _mm256_set1_ps(total / static_cast<float>(n));
  const float squares = norm_sum(x, n, [mean](__m256 sum, __m256 v, __m256i mask) {
    const __m256 difference = _mm256_and_ps(_mm256_sub_ps(v, mean), _mm256_castsi256_ps(mask));
    return _mm256_fmadd_ps(difference, difference, sum);
  });
  const __m256 r = _mm256_set1_ps(reciprocal_root(squares, eps, n));
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 difference = _mm256_sub_ps(lanes.load(x + k), mean);
    const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(difference, r), lanes.load(gain + k));
    lanes.store(out + k, _mm256_add_ps(scaled, lanes.load(beta + k)));
  });
}

// x / (1 + exp(-x)), times up
void swiglu(const float* gate, const float* up, std::int64_t n, float* out) noexcept {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 v = lanes.load(gate + k);
    const __m256 silu = _mm256_div_ps(v, _mm256_add_ps(one, exp_lanes(_mm256_xor_ps(v, sign))));
    lanes.store(out + k, _mm256_mul_ps(silu, lanes.load(up + k)));
  });
}

// x / (1 + exp(-gate))
void gate(const float* gate, std::int64_t n, float* x) noexcept {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 e = exp_lanes(_mm256_xor_ps(lanes.load(gate + k), sign));
    lanes.store(x + k, _mm256_div_ps(lanes.load(x + k), _mm256_add_ps(one, e)));
  });
}

// x / (1 + exp(-2u)), u = scale * fma(cubic * (x * x), x, x)
void gelu(const float* x, std::int64_t n, float* out) noexcept {
  const __m256 one = _mm256_set1_ps(1.0f);
  for_registers(n, [=](std::int64_t k, auto lanes) {
    const __m256 v = lanes.load(x + k);
    const __m256 cubic = _mm256_mul_ps(_mm256_set1_ps(kGeluCubic), _mm256_mul_ps(v, v));
    const __m256 u = _mm256_mul_ps(_mm256_set1_ps(kGeluScale), _mm256_fmadd_ps(cubic, v, v));
    const __m256 e = exp_lanes(_mm256_mul_ps(_mm256_set1_ps(-2.0f), u));
    lanes.store(out + k, _mm256_div_ps(v, _mm256_add_ps(one, e)));
  });
}

// Magnitudes compare like their bits, and infinity and NaN lie above all numbers.
float absmax(const float* x, std::int64_t n) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for_registers(n, [&](std::int64_t k, auto lanes) {
    const __m256i bits = _mm256_castps_si256(lanes.load(x + k));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  });
  alignas(32) std::uint32_t lane[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lane), largest);
  std::uint32_t most = 0;
  for (const std::uint32_t value : lane) most = value > most ? value : most;
  return __builtin_bit_cast(float, most);
}

// Codes of 32 numbers leave in one store: what reads them soon after smaller stores waits until
// these have reached the cache. Bytes are summed as unsigned ones, code + 128.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const __m256 factor = _mm256_set1_ps(inv);
  const __m256 low = _mm256_set1_ps(-127.0f);
  const __m256 high = _mm256_set1_ps(127.0f);
  const auto rounded = [=](__m256 v) {
    const __m256 scaled = _mm256_mul_ps(v, factor);
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, low), high));
  };
  // Packing takes 16 bytes of each register in turn.
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
  for_registers(n - first, [&](std::int64_t k, auto lanes) {
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

const RowKernels& row_kernels_avx2() { return kKernels; }

}  // namespace leq::cpu
