// Codes under superblock scales (q4_k, q5_k, q6_k) on x86: tiles of some tokens x some registers
// of outputs, in SuperPanel's order of operations.
//   Lanes: Lanes256 or Lanes512, with dot(sum, codes, inputs), which adds u8 codes times s8 inputs,
//     four per lane
//   kOut, kTile: registers of outputs, and tokens, of a tile of many tokens. A single token uses
//     four registers of outputs, so that it has four independent sums
#pragma once

#include <cstdint>
#include <cstring>

#include "backend/cpu/kernels/x86/super_codes.h"

namespace leq::cpu {
namespace {

constexpr std::int64_t kSuperColumns = 256;  // columns of a superblock
constexpr std::int64_t kSuperRows = 64;

// The sums of kOut registers of outputs x kTile tokens, indexed by o * kTile + t.
template <class Lanes, int kOut, int kTile>
struct SuperTile {
  using Ints = typename Lanes::Ints;
  using Floats = typename Lanes::Floats;
  static constexpr int kSums = kOut * kTile;

  const SuperPanel& panel;
  std::int64_t output;  // first output of the registers
  const std::uint8_t* inputs[kTile];
  const float* scales[kTile];
  const std::int32_t* sums[kTile];  // sums of inputs over 32 columns, or 16 for q6_k
  Floats f[kSums];

  inline __attribute__((always_inline)) std::int64_t outputs_of(int o) const {
    return output + o * Lanes::kOutputs;
  }

  // Adds products of part kPart of kParts equal parts of the 32 columns from k on, without minima;
  // kHigh bits of a code are in the other plane.
  template <int kHigh, int kPart, int kParts>
  inline __attribute__((always_inline)) void products(std::int64_t k, Ints (&sum)[kSums]) const {
    const Ints nibble = Lanes::repeat8(15);
    Ints high[kOut];
    for (int o = 0; o < kOut; ++o) {
      const std::int64_t byte = outputs_of(o) * 4;
      if constexpr (kHigh == 1) high[o] = Lanes::load_ints(panel.high_codes + k / 32 * 256 + byte);
      if constexpr (kHigh == 2) {
        high[o] = Lanes::load_ints(panel.high_codes + (k / 16 + kPart) * 256 + byte);
      }
    }
    for (Ints& one : sum) one = Lanes::repeat32(0);
    constexpr int kPairs = 4 / kParts;
    for (int j = 0; j < kPairs; ++j) {
      const int pair = kPart * kPairs + j;
      for (int o = 0; o < kOut; ++o) {
        const Ints both = Lanes::load_ints(panel.codes + (k / 8 + pair) * 256 + outputs_of(o) * 4);
        Ints first = Lanes::both(both, nibble);
        Ints second = Lanes::both(Lanes::template shifted<-4>(both), nibble);
        if constexpr (kHigh == 1) {
          const Ints bit = Lanes::repeat8(16);
          first = Lanes::either(first, Lanes::both(shifted_by(high[o], 4 - 2 * pair), bit));
          second = Lanes::either(second, Lanes::both(shifted_by(high[o], 3 - 2 * pair), bit));
        }
        if constexpr (kHigh == 2) {
          const Ints bits = Lanes::repeat8(48);
          first = Lanes::either(first, Lanes::both(shifted_by(high[o], 4 - 4 * j), bits));
          second = Lanes::either(second, Lanes::both(shifted_by(high[o], 2 - 4 * j), bits));
        }
        for (int t = 0; t < kTile; ++t) {
          Ints& to = sum[o * kTile + t];
          Lanes::dot(to, first, Lanes::repeat_quad(inputs[t] + k + 8 * pair));
          Lanes::dot(to, second, Lanes::repeat_quad(inputs[t] + k + 8 * pair + 4));
        }
      }
    }
  }

  // The loops above are unrolled, so that `places` is a constant.
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

  inline __attribute__((always_inline)) Floats token_scale(int t, std::int64_t span) const {
    return Lanes::repeat(scales[t][panel.scale_by_span ? span : 0]);
  }

  // Adds a span of codes of 4 + kHigh bits with minima.
  template <int kHigh>
  inline __attribute__((always_inline)) void add_span(std::int64_t span) {
    Ints a[kSums], b[kSums];
    for (int i = 0; i < kSums; ++i) a[i] = b[i] = Lanes::repeat32(0);
    const std::int64_t groups = panel.span / 32;
    for (std::int64_t group = span * groups; group < (span + 1) * groups; ++group) {
      Ints sum[kSums];
      products<kHigh, 0, 1>(group * 32, sum);
      for (int o = 0; o < kOut; ++o) {
        const std::uint8_t* sub = panel.sub_scales + group * 2 * kSuperRows + outputs_of(o);
        const Ints scale = Lanes::from_u8(sub);
        const Ints min = Lanes::from_u8(sub + kSuperRows);
        for (int t = 0; t < kTile; ++t) {
          const int i = o * kTile + t;
          a[i] = Lanes::add32(a[i], Lanes::mul32(sum[i], scale));
          // Both factors fit into 16 bits, so that one 16-bit product replaces two 32-bit products.
          b[i] = Lanes::sub32(b[i], Lanes::products16(Lanes::repeat32(sums[t][group]), min));
        }
      }
    }
    for (int o = 0; o < kOut; ++o) {
      const std::uint16_t* super =
          panel.super_scales + span * panel.span / kSuperColumns * 2 * kSuperRows + outputs_of(o);
      const Floats d = Lanes::load(super);
      const Floats dmin = Lanes::load(super + kSuperRows);
      for (int t = 0; t < kTile; ++t) {
        const int i = o * kTile + t;
        f[i] = Lanes::fma(Lanes::to_floats(a[i]), Lanes::mul(d, token_scale(t, span)), f[i]);
        f[i] = Lanes::fma(Lanes::to_floats(b[i]), Lanes::mul(dmin, token_scale(t, span)), f[i]);
      }
    }
  }

  template <int kPart>
  inline __attribute__((always_inline)) void add_16(std::int64_t k, Ints (&a)[kSums]) const {
    Ints sum[kSums];
    products<2, kPart, 2>(k, sum);
    const std::int64_t block = k / 16 + kPart;
    for (int o = 0; o < kOut; ++o) {
      const Ints scale = Lanes::from_i8(panel.sub_scales + block * kSuperRows + outputs_of(o));
      for (int t = 0; t < kTile; ++t) {
        const int i = o * kTile + t;
        const Ints centred = Lanes::sub32(sum[i], Lanes::repeat32(32 * sums[t][block]));
        a[i] = Lanes::add32(a[i], Lanes::mul32(centred, scale));
      }
    }
  }

  // Adds a span of symmetric codes of six bits.
  inline __attribute__((always_inline)) void add_span_of_6(std::int64_t span) {
    Ints a[kSums];
    for (Ints& one : a) one = Lanes::repeat32(0);
    for (std::int64_t k = span * panel.span; k < (span + 1) * panel.span; k += 32) {
      add_16<0>(k, a);
      add_16<1>(k, a);
    }
    for (int o = 0; o < kOut; ++o) {
      const Floats d = Lanes::load(panel.super_scales +
                                   span * panel.span / kSuperColumns * kSuperRows + outputs_of(o));
      for (int t = 0; t < kTile; ++t) {
        const int i = o * kTile + t;
        f[i] = Lanes::fma(Lanes::to_floats(a[i]), Lanes::mul(d, token_scale(t, span)), f[i]);
      }
    }
  }
};

// Computes tokens [token, token + kTile) x 64 outputs. `sums16` has the sums of their inputs over
// 16 columns, in kTile rows of `stride`.
template <class Lanes, int kOut, int kTile, int kBits>
inline void super_tokens(const SuperPanel& panel, std::int64_t token, const std::int32_t* sums16,
                         std::int64_t stride) {
  for (std::int64_t output = 0; output < kSuperRows; output += kOut * Lanes::kOutputs) {
    SuperTile<Lanes, kOut, kTile> tile = {panel, output, {}, {}, {}, {}};
    for (int t = 0; t < kTile; ++t) {
      tile.inputs[t] = panel.inputs + (token + t) * panel.input_stride;
      tile.scales[t] = panel.token_scales + (token + t) * panel.token_scale_stride;
      tile.sums[t] = kBits == 6 ? sums16 + t * stride
                                : panel.token_sums + (token + t) * panel.token_sum_stride;
    }
    for (auto& one : tile.f) one = Lanes::repeat(0.0f);
    for (std::int64_t span = 0; span * panel.span < panel.columns; ++span) {
      if constexpr (kBits == 6) {
        tile.add_span_of_6(span);
      } else {
        tile.template add_span<kBits - 4>(span);
      }
    }
    for (int i = 0; i < kOut * kTile; ++i) {
      const std::int64_t first = tile.outputs_of(i / kTile);
      float* const y = panel.y + (token + i % kTile) * panel.y_stride + first;
      Lanes::store(y, panel.bias == nullptr
                          ? tile.f[i]
                          : Lanes::add(tile.f[i], Lanes::load(panel.bias + first)));
    }
  }
}

// Computes the sums of a token's inputs over each 16 columns.
inline void sums_by_16(const std::uint8_t* inputs, std::int64_t blocks, std::int32_t* sums) {
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += static_cast<std::int8_t>(inputs[block * 16 + i]);
    sums[block] = sum;
  }
}

template <class Lanes, int kOut, int kTile, int kBits>
void super_panel(const SuperPanel& panel) {
  const std::int64_t padded = (panel.columns + kSuperPad - 1) / kSuperPad * kSuperPad;
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
    super_tokens<Lanes, kOut, kTile, kBits>(panel, token, sums, blocks);
  }
  for (; token < panel.tokens; ++token) {
    gather(1);
    super_tokens<Lanes, 4, 1, kBits>(panel, token, sums, blocks);
  }
}

template <class Lanes, int kOut, int kTile>
void super_of_bits(const SuperPanel& panel) noexcept {
  if (panel.bits == 4) return super_panel<Lanes, kOut, kTile, 4>(panel);
  if (panel.bits == 5) return super_panel<Lanes, kOut, kTile, 5>(panel);
  super_panel<Lanes, kOut, kTile, 6>(panel);
}

// Few tokens use these tiles, which unpack a panel's codes once a tile; with more tokens it is
// faster to unpack them once.
constexpr std::int64_t kSuperTokens = 13;
template <void (*kFew)(const SuperPanel&) noexcept, void (*kMany)(const SuperPanel&) noexcept>
void super_by_count(const SuperPanel& panel) noexcept {
  (panel.tokens < kSuperTokens ? kFew : kMany)(panel);
}

}  // namespace
}  // namespace leq::cpu
