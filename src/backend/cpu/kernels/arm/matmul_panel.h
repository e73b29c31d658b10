// Integer matmuls with 128-bit registers: four outputs to a register, sixteen columns at a time. An
// instruction set adds its own step from sixteen codes to four sums. Everything is in an unnamed
// namespace, so that files built for different instruction sets share no code.
//
// Both sides are signed here. int8: the offset of 128 is removed from the inputs by flipping their
// top bit, so that no sums of codes are needed. uint8: 128 is subtracted from the codes in the same
// way and from their zero points. Codes below 8 bits are non-negative already.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"

namespace leq::cpu {
namespace {

// The kinds of codes. int8 is kSigned; the others (kBits = 8, 4, 3, 2) have zero points, or numbers
// in a table.
template <int kBits_, bool kSigned_, bool kTable_ = false>
struct Codes {
  static constexpr bool kTable = kTable_;
  static constexpr int kMiddle = kBits_ == 8 ? 128 : 0;  // subtracted from codes
  static constexpr int kBits = kBits_;
  static constexpr bool kSigned = kSigned_;
  static constexpr int kLow = kBits == 3 ? 2 : kBits;  // bits in the first plane
  static constexpr int kQuads = 8 / kLow;              // quads of columns per byte there
};

// Addresses of the codes of sixteen columns of a panel, from one output on, in the panel's planes.
struct Planes {
  const std::uint8_t* low;
  const std::uint8_t* high;  // for codes of 3 bits
  int8x16_t high_shift;      // for codes of 3 bits: shift of quad 0's third bits to bit 2
  uint8x16_t numbers = {};   // the table, as signed bytes
};

template <class C>
inline __attribute__((always_inline)) Planes planes_at(const IntPanel& panel, std::int64_t k,
                                                       std::int64_t output) {
  Planes planes{panel.codes + k * 8 * C::kLow + output * 4, nullptr, vdupq_n_s8(0)};
  if constexpr (C::kBits == 3) {
    planes.high = panel.high_codes + k / 32 * 256 + output * 4;
    planes.high_shift = vdupq_n_s8(static_cast<std::int8_t>(2 - k / 4 % 8));
  }
  if constexpr (C::kTable) {
    const uint8x16_t zero = vdupq_n_u8(static_cast<std::uint8_t>(panel.zero));
    planes.numbers = vsubq_u8(vld1q_u8(panel.table), zero);
  }
  return planes;
}

// The codes of four outputs (register r of a tile) in the four columns of quad kQuad of 0..3.
template <class C, int kQuad>
inline __attribute__((always_inline)) int8x16_t codes_at(const Planes& planes, int r) {
  constexpr int kShift = kQuad % C::kQuads * C::kLow;
  uint8x16_t codes = vld1q_u8(planes.low + kQuad / C::kQuads * 256 + 16 * r);
  if constexpr (C::kBits == 8) {
    if constexpr (!C::kSigned) codes = veorq_u8(codes, vdupq_n_u8(128));
    return vreinterpretq_s8_u8(codes);
  }
  if constexpr (kShift > 0) codes = vshrq_n_u8(codes, kShift > 0 ? kShift : 1);
  if constexpr (kShift + C::kLow < 8) codes = vandq_u8(codes, vdupq_n_u8((1 << C::kLow) - 1));
  if constexpr (C::kBits == 3) {
    const int8x16_t shift = vsubq_s8(planes.high_shift, vdupq_n_s8(kQuad));
    const uint8x16_t third = vshlq_u8(vld1q_u8(planes.high + 16 * r), shift);  // negative: right
    codes = vorrq_u8(codes, vandq_u8(third, vdupq_n_u8(4)));
  }
  if constexpr (C::kTable) codes = vqtbl1q_u8(planes.numbers, codes);
  return vreinterpretq_s8_u8(codes);
}

// c[m][r] += codes * inputs of one quad, for M tokens x R registers of four outputs.
template <class C, class Step, int kQuad, int M, int R>
inline __attribute__((always_inline)) void add_quad(const Planes& planes, const int8x16_t (&x)[M],
                                                    int32x4_t (&c)[M][R]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const int8x16_t codes = codes_at<C, kQuad>(planes, r);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) c[m][r] = Step::template add<kQuad>(c[m][r], codes, x[m]);
  }
}

// Adds columns [first, last), a multiple of sixteen, to c. An instruction set with another kind of
// step has its own overload.
template <class C, class Step>
struct Columns {
  template <int M, int R>
  static inline __attribute__((always_inline)) void add(const IntPanel& panel, std::int64_t token,
                                                        std::int64_t output, std::int64_t first,
                                                        std::int64_t last, int32x4_t (&c)[M][R]) {
    const std::uint8_t* inputs = panel.inputs + token * panel.input_stride;
    for (std::int64_t k = first; k < last; k += 16) {
      int8x16_t x[M];
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        uint8x16_t bytes = vld1q_u8(inputs + m * panel.input_stride + k);
        if constexpr (C::kSigned) bytes = veorq_u8(bytes, vdupq_n_u8(128));
        x[m] = vreinterpretq_s8_u8(bytes);
      }
      const Planes planes = planes_at<C>(panel, k, output);
      add_quad<C, Step, 0>(planes, x, c);
      add_quad<C, Step, 1>(planes, x, c);
      add_quad<C, Step, 2>(planes, x, c);
      add_quad<C, Step, 3>(planes, x, c);
    }
  }
};

// Start values of the sums of four outputs of one token: -zero point * the sum of its codes.
template <class C>
inline int32x4_t start(const IntPanel& panel, std::int64_t token, std::int64_t output,
                       std::int64_t group) {
  if constexpr (C::kSigned || C::kTable) return vdupq_n_s32(0);
  const std::int32_t sum = panel.token_sums[token * panel.token_sum_stride + group];
  int32x4_t zeros = vdupq_n_s32(panel.zero);
  if (panel.zeros != nullptr) {
    std::uint32_t four;
    __builtin_memcpy(&four, panel.zeros + group * panel.zero_stride + output, sizeof four);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    zeros = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
  }
  return vmulq_n_s32(vsubq_s32(vdupq_n_s32(C::kMiddle), zeros), sum);
}

// y = fma(f, weight scale * token scale, bias) for four outputs of one token.
inline void finish(const IntPanel& panel, std::int64_t token, std::int64_t output, float32x4_t f) {
  float32x4_t scale = vdupq_n_f32(1.0f);
  if (panel.groups_a_token_scale == 0) {
    scale = vdupq_n_f32(panel.token_scales[token * panel.token_scale_stride]);
  }
  if (panel.row_scales != nullptr) scale = vmulq_f32(scale, vld1q_f32(panel.row_scales + output));
  f = panel.bias != nullptr ? vfmaq_f32(vld1q_f32(panel.bias + output), f, scale)
                            : vmulq_f32(f, scale);
  vst1q_f32(panel.y + token * panel.y_stride + output, f);
}

// Weight scale * token scale of a group for four outputs; a side without group scales counts as 1.
inline float32x4_t group_scale(const IntPanel& panel, std::int64_t token, std::int64_t output,
                               std::int64_t group) {
  float32x4_t scale = vdupq_n_f32(1.0f);
  if (panel.groups_a_token_scale != 0) {
    scale = vdupq_n_f32(
        panel.token_scales[token * panel.token_scale_stride + group / panel.groups_a_token_scale]);
  }
  if (panel.group_scales == nullptr) return scale;
  uint16x4_t halves;
  if (panel.byte_scales) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(panel.group_scales);
    std::uint32_t four;
    __builtin_memcpy(&four, bytes + group * 64 + output, sizeof four);
    halves = vget_low_u16(vshll_n_u8(vreinterpret_u8_u32(vdup_n_u32(four)), 7));
  } else {
    halves = vld1_u16(panel.group_scales + group * 64 + output);
  }
  const float32x4_t wide = vcvt_f32_f16(vreinterpret_f16_u16(halves));
  return vmulq_f32(vmulq_n_f32(wide, panel.scale_mul), scale);
}

template <class C, class Step, int M, int R>
void row_tile(const IntPanel& panel, std::int64_t token) {
  for (std::int64_t output = 0; output < 64; output += 4 * R) {
    int32x4_t c[M][R];
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) c[m][r] = start<C>(panel, token + m, output + 4 * r, 0);
    }
    Columns<C, Step>::add(panel, token, output, 0, panel.columns, c);
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) {
        finish(panel, token + m, output + 4 * r, vcvtq_f32_s32(c[m][r]));
      }
    }
  }
}

template <class C, class Step, int M, int R>
void group_tile(const IntPanel& panel, std::int64_t token) {
  for (std::int64_t output = 0; output < 64; output += 4 * R) {
    float32x4_t f[M][R];
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) f[m][r] = vdupq_n_f32(0.0f);
    }
    std::int64_t group = 0;
    for (std::int64_t k = 0; k < panel.columns; k += panel.group, ++group) {
      const std::int64_t last = k + panel.group < panel.columns ? k + panel.group : panel.columns;
      int32x4_t c[M][R];
      for (int m = 0; m < M; ++m) {
        for (int r = 0; r < R; ++r) c[m][r] = start<C>(panel, token + m, output + 4 * r, group);
      }
      Columns<C, Step>::add(panel, token, output, k, last, c);
      for (int m = 0; m < M; ++m) {
        for (int r = 0; r < R; ++r) {
          f[m][r] = vfmaq_f32(f[m][r], vcvtq_f32_s32(c[m][r]),
                              group_scale(panel, token + m, output + 4 * r, group));
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int r = 0; r < R; ++r) finish(panel, token + m, output + 4 * r, f[m][r]);
    }
  }
}

// Tiles of four tokens x 16 outputs, or one token x 64 outputs, whose codes are read in memory
// order. Both have sixteen accumulators of the 32 registers.
constexpr int kTokens = 4;
using Tile = void (*)(const IntPanel&, std::int64_t);

inline void run(const IntPanel& panel, const Tile (&tiles)[kTokens]) {
  for (std::int64_t token = 0; token < panel.tokens; token += kTokens) {
    const std::int64_t left = panel.tokens - token;
    tiles[(left < kTokens ? left : kTokens) - 1](panel, token);
  }
}

// Step::add<q>(c, codes, x): c[i] += the four products of codes[4 i ...] and x[4 q ...], i in 0..3.
template <class C, class Step>
void run_rows(const IntPanel& panel) noexcept {
  static constexpr Tile kTiles[kTokens] = {row_tile<C, Step, 1, 16>, row_tile<C, Step, 2, 4>,
                                           row_tile<C, Step, 3, 4>, row_tile<C, Step, 4, 4>};
  run(panel, kTiles);
}

template <class C, class Step>
void run_groups(const IntPanel& panel) noexcept {
  static constexpr Tile kTiles[kTokens] = {group_tile<C, Step, 1, 16>, group_tile<C, Step, 2, 4>,
                                           group_tile<C, Step, 3, 4>, group_tile<C, Step, 4, 4>};
  run(panel, kTiles);
}

// Codes under superblock scales (q4_k, q5_k, q6_k) with 128-bit registers, in SuperPanel's order of
// operations. Tiles have M tokens x R registers of four outputs, sixteen columns at a time. Codes
// are at most 63, so that 16 bits hold two products.

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
void super_of_bits(const SuperPanel& panel) noexcept {
  if (panel.bits == 4) return super_panel<Step, 4>(panel);
  if (panel.bits == 5) return super_panel<Step, 5>(panel);
  super_panel<Step, 6>(panel);
}

// The integer matmuls of a level: Step adds the products of sixteen codes to four sums.
template <class Step>
constexpr MatmulKernels int_matmuls(Isa isa) {
  using Int8 = Codes<8, true>;
  using Uint8 = Codes<8, false>;
  return {.isa = isa,
          .int8_rows = run_rows<Int8, Step>,
          .int8_groups = run_groups<Int8, Step>,
          .uint8_rows = run_rows<Uint8, Step>,
          .uint8_groups = run_groups<Uint8, Step>,
          .bits4 = run_groups<Codes<4, false>, Step>,
          .table4 = run_groups<Codes<4, false, true>, Step>,
          .bits3 = run_groups<Codes<3, false>, Step>,
          .bits2 = run_groups<Codes<2, false>, Step>,
          .super = super_of_bits<Step>,
          .int_tile = "4x16"};
}

}  // namespace
}  // namespace leq::cpu
