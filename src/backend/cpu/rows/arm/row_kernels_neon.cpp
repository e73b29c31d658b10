// Row kernels with 128-bit registers. The last columns are copied to a block of zeros first.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/arm/lanes_neon.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kWidth = 4;   // lanes of a register
constexpr std::int64_t kBlock = 16;  // columns of a register of codes

// The columns of x past n, fewer than kBlock, count as +0.
struct Tail {
  alignas(16) float columns[kBlock] = {};
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

// Four columns of x, of which the first `left` exist: f(x) there, +0 elsewhere.
template <class Function>
float32x4_t last_columns(const float* x, std::int64_t left, Function f) {
  if (left >= kWidth) return f(vld1q_f32(x));
  const Tail tail(x, left);
  float four[kWidth] = {};
  store(four, left, f(vld1q_f32(tail.columns)));
  return vld1q_f32(four);
}

// The 256 lanes of a norm's sum are 64 registers, twice as many as there are: a quarter of the
// lanes after the other, each in a pass over its own columns. sums[i] = add(sums[i], value(x)),
// then lanes +128, +64, ... +1.
template <class Value, class Add>
float norm_sum(const float* x, std::int64_t n, Value value, Add add) {
  constexpr int kRegisters = 64, kPass = 16;
  float32x4_t lanes[kRegisters];
  for (int pass = 0; pass < kRegisters; pass += kPass) {
    float32x4_t sums[kPass];
    for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
    std::int64_t k = pass * kWidth;
    for (; k + kPass * kWidth <= n; k += kRegisters * kWidth) {
#pragma GCC unroll 16
      for (int i = 0; i < kPass; ++i) {
        sums[i] = add(sums[i], value(vld1q_f32(x + k + i * kWidth)));
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPass; ++i) {
      const std::int64_t left = n - k - i * kWidth;
      if (left > 0) sums[i] = add(sums[i], last_columns(x + k + i * kWidth, left, value));
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPass; ++i) lanes[pass + i] = sums[i];
  }
  for (int width = kRegisters / 2; width >= 4; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = vaddq_f32(lanes[i], lanes[i + width]);
  }
  return add_lanes({lanes[0], lanes[1], lanes[2], lanes[3]});
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

float32x4_t add_square(float32x4_t sum, float32x4_t v) { return vfmaq_f32(sum, v, v); }

void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) noexcept {
  const float squares = norm_sum(
      x, n, [](float32x4_t v) { return v; }, add_square);
  const float r = reciprocal_root(squares, eps, n);
  for_columns(x, gain, n, out,
              [r](float32x4_t v, float32x4_t g) { return vmulq_f32(vmulq_n_f32(v, r), g); });
}

void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total = norm_sum(
      x, n, [](float32x4_t v) { return v; },
      [](float32x4_t sum, float32x4_t v) { return vaddq_f32(sum, v); });
  const float mean = total / static_cast<float>(n);
  const float squares = norm_sum(
      x, n, [=](float32x4_t v) { return vsubq_f32(v, vdupq_n_f32(mean)); }, add_square);
  const float r = reciprocal_root(squares, eps, n);
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

// x / (1 + exp(-gate))
void gate(const float* gate, std::int64_t n, float* x) noexcept {
  for_columns(gate, x, n, x, [](float32x4_t g, float32x4_t v) {
    return vdivq_f32(v, vaddq_f32(vdupq_n_f32(1.0f), exp_lanes(vnegq_f32(g))));
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

// A code with offset 128 differs from the signed byte in its top bit alone.
std::int32_t quantize(const float* x, std::int64_t n, float inv, int offset,
                      std::uint8_t* codes) noexcept {
  const uint8x16_t flip = vdupq_n_u8(static_cast<std::uint8_t>(offset));
  int32x4_t sums = vdupq_n_s32(0);
  const auto block = [&](const float* columns, std::uint8_t* to) {
    const uint8x16_t bytes = codes_of(columns, inv, offset);
    sums = vpadalq_s16(sums, vpaddlq_s8(vreinterpretq_s8_u8(veorq_u8(bytes, flip))));
    vst1q_u8(to, bytes);
  };
  std::int64_t k = 0;
  for (; k + kBlock <= n; k += kBlock) block(x + k, codes + k);
  if (k < n) {
    const Tail tail(x + k, n - k);  // 0 after the last column
    std::uint8_t last[kBlock];
    block(tail.columns, last);
    for (std::int64_t i = 0; i < n - k; ++i) codes[k + i] = last[i];
  }
  return vaddvq_s32(sums);
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

const RowKernels& row_kernels_neon() { return kKernels; }

}  // namespace leq::cpu
