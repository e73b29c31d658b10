// Row kernels with 128-bit registers: four registers are the sixteen lanes of every sum. The last
// columns are copied to a block of zeros first.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/arm/lanes_neon.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kWidth = 4;   // lanes of a register
constexpr std::int64_t kLanes = 16;  // of a sum

// The columns of x past n, fewer than kLanes, count as +0.
struct Tail {
  alignas(16) float columns[kLanes] = {};
  Tail(const float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) columns[i] = x[i];
  }
};

void store(float* out, std::int64_t n, float32x4_t values) {
  float four[kWidth];
  vst1q_f32(four, values);
  for (std::int64_t i = 0; i < n; ++i) out[i] = four[i];
}

// out[k] = f(a[k], b[k]), a register at a time.
template <class Function>
void for_columns(const float* a, const float* b, std::int64_t n, float* out, Function f) {
  std::int64_t k = 0;
  for (; k + kWidth <= n; k += kWidth) vst1q_f32(out + k, f(vld1q_f32(a + k), vld1q_f32(b + k)));
  if (k == n) return;
  const Tail x(a + k, n - k), y(b + k, n - k);
  store(out + k, n - k, f(vld1q_f32(x.columns), vld1q_f32(y.columns)));
}

// sums[i] = f(sums[i], x) over sixteen columns at a time.
template <class Function>
float sum_columns(const float* x, std::int64_t n, Function f) {
  float32x4_t sums[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f),
                         vdupq_n_f32(0.0f)};
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int i = 0; i < 4; ++i) sums[i] = f(sums[i], vld1q_f32(x + k + 4 * i));
  }
  if (k < n) {
    const Tail tail(x + k, n - k);
    for (int i = 0; i < 4; ++i) sums[i] = f(sums[i], vld1q_f32(tail.columns + 4 * i));
  }
  return add_lanes(sums);
}

// Columns past the last are no difference from the mean, but +0.
float sum_of_squared_differences(const float* x, float mean, std::int64_t n) {
  const std::int64_t whole = n / kLanes * kLanes;
  float32x4_t sums[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f),
                         vdupq_n_f32(0.0f)};
  const float32x4_t means = vdupq_n_f32(mean);
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    for (int i = 0; i < 4; ++i) {
      const float32x4_t difference = vsubq_f32(vld1q_f32(x + k + 4 * i), means);
      sums[i] = vfmaq_f32(sums[i], difference, difference);
    }
  }
  if (whole < n) {
    Tail tail(x + whole, n - whole);
    for (std::int64_t i = 0; i < n - whole; ++i) tail.columns[i] -= mean;
    for (int i = 0; i < 4; ++i) {
      const float32x4_t difference = vld1q_f32(tail.columns + 4 * i);
      sums[i] = vfmaq_f32(sums[i], difference, difference);
    }
  }
  return add_lanes(sums);
}

float reciprocal_root(float total, float eps, std::int64_t n) {
  const float mean = total / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

void add(const float* y, std::int64_t n, float* x) noexcept {
  for_columns(x, y, n, x, [](float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); });
}

void multiply(const float* y, std::int64_t n, float* x) noexcept {
  for_columns(x, y, n, x, [](float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); });
}

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) noexcept {
  const float total =
      sum_columns(x, n, [](float32x4_t sum, float32x4_t v) { return vfmaq_f32(sum, v, v); });
  const float r = reciprocal_root(total, eps, n);
  for_columns(x, gain, n, out,
              [r](float32x4_t v, float32x4_t g) { return vmulq_f32(vmulq_n_f32(v, r), g); });
}

void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total =
      sum_columns(x, n, [](float32x4_t sum, float32x4_t v) { return vaddq_f32(sum, v); });
  const float mean = total / static_cast<float>(n);
  const float r = reciprocal_root(sum_of_squared_differences(x, mean, n), eps, n);
  for_columns(x, gain, n, out, [=](float32x4_t v, float32x4_t g) {
    return vmulq_f32(vmulq_n_f32(vsubq_f32(v, vdupq_n_f32(mean)), r), g);
  });
  add(beta, n, out);
}

// x / (1 + exp(-x)), times up
void swiglu(const float* gate, const float* up, std::int64_t n, float* out) noexcept {
  for_columns(gate, up, n, out, [](float32x4_t v, float32x4_t u) {
    const float32x4_t below = vaddq_f32(vdupq_n_f32(1.0f), exp_lanes(vnegq_f32(v)));
    return vmulq_f32(vdivq_f32(v, below), u);
  });
}

// x / (1 + exp(-2u)), u = scale * fma(cubic * (x * x), x, x)
void gelu(const float* x, std::int64_t n, float* out) noexcept {
  for_columns(x, x, n, out, [](float32x4_t v, float32x4_t) {
    const float32x4_t cubic = vmulq_n_f32(vmulq_f32(v, v), kGeluCubic);
    const float32x4_t u = vmulq_n_f32(vfmaq_f32(v, cubic, v), kGeluScale);
    const float32x4_t e = exp_lanes(vmulq_n_f32(u, -2.0f));
    return vdivq_f32(v, vaddq_f32(vdupq_n_f32(1.0f), e));
  });
}

// Magnitudes compare like their bits, and infinity and NaN lie above all numbers.
float absmax(const float* x, std::int64_t n) noexcept {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t largest = vdupq_n_u32(0);
  std::int64_t k = 0;
  for (; k + kWidth <= n; k += kWidth) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(x + k));
    largest = vmaxq_u32(largest, vandq_u32(bits, magnitude));
  }
  std::uint32_t most = vmaxvq_u32(largest);
  for (; k < n; ++k) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x[k]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  return __builtin_bit_cast(float, most);
}

// Sixteen codes.
uint8x16_t codes_of(const float* x, float inv, int offset) {
  uint16x4_t parts[4];
  for (int i = 0; i < 4; ++i) {
    float32x4_t v = vmulq_n_f32(vld1q_f32(x + 4 * i), inv);
    v = vminq_f32(vmaxq_f32(v, vdupq_n_f32(-127.0f)), vdupq_n_f32(127.0f));
    const int32x4_t code = vaddq_s32(vcvtnq_s32_f32(v), vdupq_n_s32(offset));  // ties to even
    parts[i] = vmovn_u32(vreinterpretq_u32_s32(code));
  }
  return vcombine_u8(vmovn_u16(vcombine_u16(parts[0], parts[1])),
                     vmovn_u16(vcombine_u16(parts[2], parts[3])));
}

void quantize(const float* x, std::int64_t n, float inv, int offset, std::uint8_t* codes) noexcept {
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) vst1q_u8(codes + k, codes_of(x + k, inv, offset));
  if (k == n) return;
  const Tail tail(x + k, n - k);
  std::uint8_t last[kLanes];
  vst1q_u8(last, codes_of(tail.columns, inv, offset));
  for (std::int64_t i = 0; i < n - k; ++i) codes[k + i] = last[i];
}

// A code with offset 128 differs from the signed byte in its top bit alone.
std::int32_t code_sum(const std::uint8_t* codes, std::int64_t n, int offset) noexcept {
  const uint8x16_t flip = vdupq_n_u8(static_cast<std::uint8_t>(offset));
  int32x4_t sums = vdupq_n_s32(0);
  std::int64_t k = 0;
  for (; k + 16 <= n; k += 16) {
    const int8x16_t bytes = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(codes + k), flip));
    sums = vpadalq_s16(sums, vpaddlq_s8(bytes));
  }
  std::int32_t total = vaddvq_s32(sums);
  for (; k < n; ++k) total += static_cast<std::int8_t>(codes[k] ^ offset);
  return total;
}

constexpr RowKernels kKernels = {add,  multiply, rms_norm, layer_norm, swiglu,
                                 gelu, absmax,   quantize, code_sum};

}  // namespace

const RowKernels& row_kernels_neon() { return kKernels; }

}  // namespace leq::cpu
