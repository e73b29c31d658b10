// Codes under scales of scales (q4_k, q5_k, q6_k) on x86: tiles of some tokens by one register of
// outputs, in the order that SuperPanel names.
//   Lanes: lanes_avx2.h or lanes_avx512.h, with
//     dot(sum, codes, inputs)   sum += u8 codes times s8 inputs, four to a lane
//     from_i8(bytes)            signed bytes as 32-bit numbers
//   kTile: tokens whose sums stay in registers
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/matmul/super_kernels.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kSuperHalf = 128;  // columns of a whole sum
constexpr std::int64_t kSuperRows = 64;

template <class Lanes, int kTile>
struct SuperTile {
  using Ints = typename Lanes::Ints;
  using Floats = typename Lanes::Floats;

  const SuperPanel& panel;
  std::int64_t output;  // first of the register's
  const std::uint8_t* inputs[kTile];
  const float* scales[kTile];
  const std::int32_t* sums[kTile];  // of inputs, by 32 columns; q6_k: by 16
  Floats f[kTile];

  inline __attribute__((always_inline)) Ints low_codes(std::int64_t byte) const {
    return Lanes::load(panel.codes + byte + output * 4);
  }

  // Products of 32 columns from k on, without minima; kHigh bits of a code are in the other plane.
  // kPart of kParts equal parts of the columns.
  template <int kHigh, int kPart, int kParts>
  inline __attribute__((always_inline)) void products(std::int64_t k, Ints (&sum)[kTile]) const {
    const Ints nibble = Lanes::repeat8(15);
    Ints high[2];
    if constexpr (kHigh == 1) high[0] = Lanes::load(panel.high_codes + k / 32 * 256 + output * 4);
    if constexpr (kHigh == 2) {
      high[0] = Lanes::load(panel.high_codes + (k / 16 + kPart) * 256 + output * 4);
    }
    for (int t = 0; t < kTile; ++t) sum[t] = Lanes::repeat32(0);
    constexpr int kPairs = 4 / kParts;
    for (int j = 0; j < kPairs; ++j) {
      const int pair = kPart * kPairs + j;
      const Ints both = low_codes((k / 8 + pair) * 256);
      Ints first = Lanes::both(both, nibble);
      Ints second = Lanes::both(Lanes::template shifted<-4>(both), nibble);
      if constexpr (kHigh == 1) {
        const Ints bit = Lanes::repeat8(16);
        first = Lanes::either(first, Lanes::both(shifted_by(high[0], 4 - 2 * pair), bit));
        second = Lanes::either(second, Lanes::both(shifted_by(high[0], 3 - 2 * pair), bit));
      }
      if constexpr (kHigh == 2) {
        const Ints bits = Lanes::repeat8(48);
        first = Lanes::either(first, Lanes::both(shifted_by(high[0], 4 - 4 * j), bits));
        second = Lanes::either(second, Lanes::both(shifted_by(high[0], 2 - 4 * j), bits));
      }
      for (int t = 0; t < kTile; ++t) {
        Lanes::dot(sum[t], first, Lanes::repeat_quad(inputs[t] + k + 8 * pair));
        Lanes::dot(sum[t], second, Lanes::repeat_quad(inputs[t] + k + 8 * pair + 4));
      }
    }
  }

  // The loops above are unrolled, so that `places` is known.
  static inline __attribute__((always_inline)) Ints shifted_by(Ints x, int places) {
    switch (places) {
      case 4:
        return Lanes::template shifted<4>(x);
      case 3:
        return Lanes::template shifted<3>(x);
      case 2:
        return Lanes::template shifted<2>(x);
      case 1:
        return Lanes::template shifted<1>(x);
      case 0:
        return x;
      case -1:
        return Lanes::template shifted<-1>(x);
      case -2:
        return Lanes::template shifted<-2>(x);
      default:
        return Lanes::template shifted<-3>(x);
    }
  }

  inline __attribute__((always_inline)) float token_scale(int t, std::int64_t half) const {
    return scales[t][panel.scale_by_half ? half : 0];
  }

  // Codes of 4 + kHigh bits with minima.
  template <int kHigh>
  inline __attribute__((always_inline)) void add_half(std::int64_t half) {
    Ints a[kTile], b[kTile];
    for (int t = 0; t < kTile; ++t) a[t] = b[t] = Lanes::repeat32(0);
    for (std::int64_t group = half * 4; group < half * 4 + 4; ++group) {
      Ints sum[kTile];
      products<kHigh, 0, 1>(group * 32, sum);
      const std::uint8_t* sub = panel.sub_scales + group * 2 * kSuperRows + output;
      const Ints scale = Lanes::from_u8(sub);
      const Ints min = Lanes::from_u8(sub + kSuperRows);
      for (int t = 0; t < kTile; ++t) {
        a[t] = Lanes::add32(a[t], Lanes::mul32(sum[t], scale));
        b[t] = Lanes::sub32(b[t], Lanes::mul32(Lanes::repeat32(sums[t][group]), min));
      }
    }
    const std::uint16_t* super = panel.super_scales + half / 2 * 2 * kSuperRows + output;
    const Floats d = Lanes::from_f16(super);
    const Floats dmin = Lanes::from_f16(super + kSuperRows);
    for (int t = 0; t < kTile; ++t) {
      const Floats by_token = Lanes::repeat(token_scale(t, half));
      f[t] = Lanes::fma(Lanes::to_floats(a[t]), Lanes::mul(d, by_token), f[t]);
      f[t] = Lanes::fma(Lanes::to_floats(b[t]), Lanes::mul(dmin, by_token), f[t]);
    }
  }

  template <int kPart>
  inline __attribute__((always_inline)) void add_16(std::int64_t k, Ints (&a)[kTile]) {
    Ints sum[kTile];
    products<2, kPart, 2>(k, sum);
    const std::int64_t block = k / 16 + kPart;
    const Ints scale = Lanes::from_i8(panel.sub_scales + block * kSuperRows + output);
    for (int t = 0; t < kTile; ++t) {
      const Ints centred = Lanes::sub32(sum[t], Lanes::repeat32(32 * sums[t][block]));
      a[t] = Lanes::add32(a[t], Lanes::mul32(centred, scale));
    }
  }

  // Symmetric codes of six bits.
  inline __attribute__((always_inline)) void add_half_of_6(std::int64_t half) {
    Ints a[kTile];
    for (int t = 0; t < kTile; ++t) a[t] = Lanes::repeat32(0);
    for (std::int64_t k = half * kSuperHalf; k < (half + 1) * kSuperHalf; k += 32) {
      add_16<0>(k, a);
      add_16<1>(k, a);
    }
    const Floats d = Lanes::from_f16(panel.super_scales + half / 2 * kSuperRows + output);
    for (int t = 0; t < kTile; ++t) {
      const Floats by_token = Lanes::repeat(token_scale(t, half));
      f[t] = Lanes::fma(Lanes::to_floats(a[t]), Lanes::mul(d, by_token), f[t]);
    }
  }
};

// Tokens [token, token + kTile) times 64 outputs. `sums16`: of their inputs by 16 columns, [kTile]
// rows of `stride`.
template <class Lanes, int kTile, int kBits>
inline void super_tokens(const SuperPanel& panel, std::int64_t token, const std::int32_t* sums16,
                         std::int64_t stride) {
  for (std::int64_t output = 0; output < kSuperRows; output += Lanes::kOutputs) {
    SuperTile<Lanes, kTile> tile = {panel, output, {}, {}, {}, {}};
    for (int t = 0; t < kTile; ++t) {
      tile.inputs[t] = panel.inputs + (token + t) * panel.input_stride;
      tile.scales[t] = panel.token_scales + (token + t) * panel.token_scale_stride;
      tile.sums[t] = kBits == 6 ? sums16 + t * stride
                                : panel.token_sums + (token + t) * panel.token_sum_stride;
      tile.f[t] = Lanes::repeat(0.0f);
    }
    for (std::int64_t half = 0; half * kSuperHalf < panel.columns; ++half) {
      if constexpr (kBits == 6) {
        tile.add_half_of_6(half);
      } else {
        tile.template add_half<kBits - 4>(half);
      }
    }
    for (int t = 0; t < kTile; ++t) {
      float* const y = panel.y + (token + t) * panel.y_stride + output;
      Lanes::store_floats(y, panel.bias == nullptr
                                 ? tile.f[t]
                                 : Lanes::add(tile.f[t], Lanes::load_floats(panel.bias + output)));
    }
  }
}

// Sums of a token's inputs by 16 columns.
inline void sums_by_16(const std::uint8_t* inputs, std::int64_t blocks, std::int32_t* sums) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += static_cast<std::int8_t>(inputs[block * 16 + i]);
    sums[block] = sum;
  }
}

template <class Lanes, int kTile, int kBits>
void super_panel(const SuperPanel& panel) {
  const std::int64_t padded = (panel.columns + kSuperHalf - 1) / kSuperHalf * kSuperHalf;
  const std::int64_t blocks = padded / 16;
  auto* const sums = reinterpret_cast<std::int32_t*>(panel.scratch);
  std::int64_t token = 0;
  const auto gather = [&](int tokens) {
    if (kBits != 6) return;
    for (int t = 0; t < tokens; ++t) {
      sums_by_16(panel.inputs + (token + t) * panel.input_stride, blocks, sums + t * blocks);
    }
  };
  const bool fits =
      static_cast<std::size_t>(blocks) * kTile * sizeof(std::int32_t) <= kSuperScratchBytes;
  for (; fits && token + kTile <= panel.tokens; token += kTile) {
    gather(kTile);
    super_tokens<Lanes, kTile, kBits>(panel, token, sums, blocks);
  }
  for (; token < panel.tokens; ++token) {
    gather(1);
    super_tokens<Lanes, 1, kBits>(panel, token, sums, blocks);
  }
}

template <class Lanes, int kTile>
void super_of_bits(const SuperPanel& panel) {
  if (panel.bits == 4) return super_panel<Lanes, kTile, 4>(panel);
  if (panel.bits == 5) return super_panel<Lanes, kTile, 5>(panel);
  super_panel<Lanes, kTile, 6>(panel);
}

}  // namespace
}  // namespace leq::cpu
