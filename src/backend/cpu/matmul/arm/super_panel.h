// Codes under superblock scales (q4_k, q5_k, q6_k) with 128-bit registers, in SuperPanel's order of
// operations. Tiles have M tokens x R registers of four outputs, sixteen columns at a time. Step is
// that of step_neon.h or step_dotprod.h. Codes are at most 63, so that 16 bits hold two products.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/matmul/super_kernels.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kSuperRows = 64;
constexpr std::int64_t kSuperBlock = 256;  // columns of a superblock

// The sums of a tile of M tokens x 4 R outputs, beginning at `output`.
template <class Step, int kBits, int M, int R>
struct SuperTile {
  using Sums = int32x4_t[M][R];
  static constexpr bool kMinima = kBits != 6;
  static constexpr std::int64_t kSub = kMinima ? 32 : 16;  // columns that share a sub-scale
  static constexpr int kNumbers = kMinima ? 2 : 1;         // scale and minimum, or only a scale

  const SuperPanel& panel;
  std::int64_t token;
  std::int64_t output;
  float32x4_t f[M][R] = {};

  // The codes of four outputs (register r) in the four columns of quad kQuad of the 16 from k on.
  template <int kQuad>
  inline __attribute__((always_inline)) int8x16_t codes(std::int64_t k, int r) const {
    const std::int64_t byte = output * 4 + 16 * r;
    const uint8x16_t two = vld1q_u8(panel.codes + (k / 8 + kQuad / 2) * 256 + byte);
    uint8x16_t codes = kQuad % 2 == 0 ? vandq_u8(two, vdupq_n_u8(15)) : vshrq_n_u8(two, 4);
    if constexpr (kBits > 4) {
      constexpr int kHigh = kBits - 4;
      const uint8x16_t high = vld1q_u8(panel.high_codes + k / (32 / kHigh) * 256 + byte);
      const auto place =
          static_cast<std::int8_t>(kBits == 5 ? 4 - kQuad - k / 4 % 8 : 4 - 2 * kQuad);
      const uint8x16_t moved = vshlq_u8(high, vdupq_n_s8(place));  // negative: right
      codes = vorrq_u8(codes, vandq_u8(moved, vdupq_n_u8(16 * ((1 << kHigh) - 1))));
    }
    return vreinterpretq_s8_u8(codes);
  }

  template <int kQuad>
  inline __attribute__((always_inline)) void add_quad(std::int64_t k, const int8x16_t (&x)[M],
                                                      Sums& sums) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const int8x16_t quad = codes<kQuad>(k, r);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) sums[m][r] = Step::template add<kQuad>(sums[m][r], quad, x[m]);
    }
  }

  // Sums over kSub columns, beginning at k, of codes times inputs and of inputs alone.
  inline __attribute__((always_inline)) void products(std::int64_t k, Sums& sums,
                                                      std::int32_t (&inputs)[M]) const {
    for (int i = 0; i < M * R; ++i) sums[i / R][i % R] = vdupq_n_s32(0);
    for (std::int64_t first = k; first < k + kSub; first += 16) {
      int8x16_t x[M];
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const std::uint8_t* from = panel.inputs + (token + m) * panel.input_stride + first;
        x[m] = vreinterpretq_s8_u8(vld1q_u8(from));
        inputs[m] = kMinima ? panel.token_sums[(token + m) * panel.token_sum_stride + k / kSub]
                            : vaddlvq_s8(x[m]);
      }
      add_quad<0>(first, x, sums);
      add_quad<1>(first, x, sums);
      add_quad<2>(first, x, sums);
      add_quad<3>(first, x, sums);
    }
  }

  static inline int32x4_t four_bytes(const std::uint8_t* from) {
    std::uint32_t four;
    __builtin_memcpy(&four, from, sizeof four);
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
    if constexpr (kMinima) return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes))));
  }

  // Adds kSub columns, beginning at k, to a and b.
  inline __attribute__((always_inline)) void add_sub(std::int64_t k, Sums& a, Sums& b) const {
    Sums sums;
    std::int32_t inputs[M];
    products(k, sums, inputs);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const std::uint8_t* numbers =
          panel.sub_scales + k / kSub * kNumbers * kSuperRows + output + 4 * r;
      const int32x4_t scale = four_bytes(numbers);
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        if constexpr (kMinima) {
          a[m][r] = vmlaq_s32(a[m][r], sums[m][r], scale);
          b[m][r] = vmlaq_n_s32(b[m][r], four_bytes(numbers + kSuperRows), inputs[m]);
        } else {
          const int32x4_t centred = vsubq_s32(sums[m][r], vdupq_n_s32(32 * inputs[m]));
          a[m][r] = vmlaq_s32(a[m][r], centred, scale);
        }
      }
    }
  }

  static inline float32x4_t four_halves(const std::uint16_t* from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
  }

  inline __attribute__((always_inline)) void add_span(std::int64_t span) {
    const std::int64_t first = span * panel.span;
    Sums a, b;
    for (int i = 0; i < M * R; ++i) a[i / R][i % R] = b[i / R][i % R] = vdupq_n_s32(0);
    for (std::int64_t k = first; k < first + panel.span; k += kSub) add_sub(k, a, b);
    for (int i = 0; i < M * R; ++i) {
      const int m = i / R, r = i % R;
      const float by_token = panel.token_scales[(token + m) * panel.token_scale_stride +
                                                (panel.scale_by_span ? span : 0)];
      const std::uint16_t* super =
          panel.super_scales + first / kSuperBlock * kNumbers * kSuperRows + output + 4 * r;
      f[m][r] =
          vfmaq_f32(f[m][r], vcvtq_f32_s32(a[m][r]), vmulq_n_f32(four_halves(super), by_token));
      if constexpr (kMinima) {
        const float32x4_t dmin = four_halves(super + kSuperRows);
        f[m][r] = vfmsq_f32(f[m][r], vcvtq_f32_s32(b[m][r]), vmulq_n_f32(dmin, by_token));
      }
    }
  }

  void finish() const {
    for (int i = 0; i < M * R; ++i) {
      const std::int64_t first = output + 4 * (i % R);
      float32x4_t y = f[i / R][i % R];
      if (panel.bias != nullptr) y = vaddq_f32(y, vld1q_f32(panel.bias + first));
      vst1q_f32(panel.y + (token + i / R) * panel.y_stride + first, y);
    }
  }
};

template <class Step, int kBits, int M, int R>
void super_tokens(const SuperPanel& panel, std::int64_t token) {
  for (std::int64_t output = 0; output < kSuperRows; output += 4 * R) {
    SuperTile<Step, kBits, M, R> tile{panel, token, output};
    for (std::int64_t span = 0; span * panel.span < panel.columns; ++span) tile.add_span(span);
    tile.finish();
  }
}

// Tiles have two tokens x eight outputs, or one x 16; sums, a, b and f fill 16 of 32 registers.
template <class Step, int kBits>
void super_panel(const SuperPanel& panel) {
  std::int64_t token = 0;
  for (; token + 2 <= panel.tokens; token += 2) super_tokens<Step, kBits, 2, 2>(panel, token);
  if (token < panel.tokens) super_tokens<Step, kBits, 1, 4>(panel, token);
}

template <class Step>
void super_of_bits(const SuperPanel& panel) {
  if (panel.bits == 4) return super_panel<Step, 4>(panel);
  if (panel.bits == 5) return super_panel<Step, 5>(panel);
  super_panel<Step, 6>(panel);
}

}  // namespace
}  // namespace leq::cpu
