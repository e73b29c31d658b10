// Row kernels with 128-bit registers.
#include "backend/cpu/rows/arm/floats_neon.h"
#include "backend/cpu/rows/row_lanes.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kBlock = 16;  // columns whose codes fill a register

// The codes of sixteen numbers.
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

// A code with offset 128 differs from the signed byte only in its top bit.
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
    float columns[kBlock] = {};
    std::uint8_t last[kBlock];
    for (std::int64_t i = 0; i < n - k; ++i) columns[i] = x[k + i];
    block(columns, last);
    for (std::int64_t i = 0; i < n - k; ++i) codes[k + i] = last[i];
  }
  return vaddvq_s32(sums);
}

struct Rows128 : Floats128 {
  using Words = uint32x4_t;
  // The 256 lanes of the sum would fill 64 registers, twice as many as exist, so that each quarter
  // of the lanes is summed in a separate pass over its columns.
  template <class Step>
  static float norm_sum(const float* x, std::int64_t n, Step step) {
    constexpr int kRegisters = 64, kPass = 16;
    float32x4_t lanes[kRegisters];
    for (int pass = 0; pass < kRegisters; pass += kPass) {
      float32x4_t sums[kPass];
      for (float32x4_t& sum : sums) sum = repeat(0.0f);
      std::int64_t k = pass * kLanes;
      for (; k + kPass * kLanes <= n; k += kRegisters * kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kPass; ++i) {
          sums[i] = step(sums[i], load(x + k + i * kLanes), Mask{kLanes});
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kPass; ++i) {
        const std::int64_t left = n - k - i * kLanes;
        if (left <= 0) break;
        sums[i] = step(sums[i], load(x + k + i * kLanes, first_lanes(left)), first_lanes(left));
      }
#pragma GCC unroll 16
      for (int i = 0; i < kPass; ++i) lanes[pass + i] = sums[i];
    }
    for (int width = kRegisters / 2; width >= 4; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] = vaddq_f32(lanes[i], lanes[i + width]);
    }
    return add_lanes({lanes[0], lanes[1], lanes[2], lanes[3]});
  }
  static std::uint32_t most_of(Words words) { return vmaxvq_u32(words); }
  static constexpr auto quantize = cpu::quantize;
};

}  // namespace

const RowKernels& row_kernels_neon() { return kRowKernels<Rows128>; }

}  // namespace leq::cpu
