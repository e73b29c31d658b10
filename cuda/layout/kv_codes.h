// Where packed codes of keys and values lie in a head's part of a page: in the order of the
// operands of mma m16n8k16, so that a lane finds the codes of two operands' registers in one word.
//
// 16 positions x 16 channels are a unit; units of equal positions follow each other by channels.
// Of a number at position s and channel c of a unit, k is its place along the sum of the product
// (keys: c, values: s) and n its place along the other side. Lane 4 (n % 8) + k % 8 / 2 has it.
//   4 bits: a unit is 32 words, one a lane; the code's digit is 2 (s / 8) + c / 8, in the low half
//           of the word where k is even, in the high half where it is odd
//   2 bits: as 4 bits, two units of neighbouring positions to 32 words: those of the second have
//           digits 4 to 7
//   8 bits: a unit is 64 words, two a lane: word n / 8, byte 2 (k / 8) + k % 2
// So the codes of one position share no byte with another's, but at 2 bits. Channels are padded to
// 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kv_scheme.h"
#include "cuda/layout/layout.h"

namespace leq::gpu {

constexpr int kv_units(int head_dim) { return (head_dim + 15) / 16; }  // of a row of channels

// Bytes of the codes of one head in a page.
constexpr std::int64_t kv_code_bytes(int bits, int head_dim) {
  return std::int64_t{kKvPageTokens} * kv_units(head_dim) * 2 * bits;
}

struct KvCodePlace {
  int word = 0;   // of 32 bits
  int shift = 0;  // to the code's lowest bit

  bool operator==(const KvCodePlace&) const = default;
};

constexpr KvCodePlace kv_code_place(KvPart part, int bits, int head_dim, int slot, int c) {
  const int s16 = slot / 16, s = slot % 16, c16 = c / 16, d = c % 16;
  const int k = part == KvPart::keys ? d : s, n = part == KvPart::keys ? s : d;
  const int lane = 4 * (n % 8) + k % 8 / 2, units = kv_units(head_dim);
  if (bits == 8) {
    return {((s16 * units + c16) * 32 + lane) * 2 + n / 8, 8 * (2 * (k / 8) + k % 2)};
  }
  const int pair = bits == 4 ? 0 : s16 % 2, row = bits == 4 ? s16 : s16 / 2;
  const int digit = 4 * pair + 2 * (s / 8) + d / 8;
  return {(row * units + c16) * 32 + lane, 16 * (k % 2) + bits * digit};
}

// What the code at `shift` of a word is: kv_code_place's way back.
struct KvCodeOwner {
  int slot = 0, channel = 0;
};
constexpr KvCodeOwner kv_code_owner(KvPart part, int bits, int head_dim, int word, int shift) {
  const int units = kv_units(head_dim);
  int k = 0, n = 0, pair = 0, lane = 0, unit = 0;
  const auto halves = [&](int by_position, int by_channel) {
    k += 8 * (part == KvPart::keys ? by_channel : by_position);
    n += 8 * (part == KvPart::keys ? by_position : by_channel);
  };
  if (bits == 8) {
    lane = word / 2 % 32;
    unit = word / 64;
    k = 8 * (shift / 16) + shift / 8 % 2;
    n = 8 * (word % 2);
  } else {
    lane = word % 32;
    unit = word / 32;
    const int digit = shift % 16 / bits;
    pair = digit / 4;
    k = shift / 16;
    halves(digit / 2 % 2, digit % 2);
  }
  k += lane % 4 * 2;
  n += lane / 4;
  const int s16 = bits == 2 ? unit / units * 2 + pair : unit / units;
  return part == KvPart::keys ? KvCodeOwner{16 * s16 + n, unit % units * 16 + k}
                              : KvCodeOwner{16 * s16 + k, unit % units * 16 + n};
}

// Scales of one head in a page, and as many minima: of groups [groups][64], of blocks [blocks][d].
constexpr int kv_ends(KvPart part, KvType type, int head_dim) {
  return static_cast<int>(kv_scale_count(kv_scheme(type), part, head_dim, kKvPageTokens));
}

// What kernels know of a packed type: its row of the table of schemes.
struct KvCodes {
  int bits = 0;   // of a code; 0: the type is not packed
  int block = 0;  // codes are made of whole blocks, and keys' scales are along channels; 0: tokens
  int group = 0;  // channels that share a scale, along tokens
  int ends = 0;   // kv_ends

  constexpr bool packed() const { return bits > 0; }
  constexpr bool blocked() const { return block > 0; }
};
constexpr KvCodes codes_of(KvPart part, KvType type, int head_dim) {
  const KvScheme& scheme = kv_scheme(type);
  if (!scheme.packed) return {};
  return {scheme.bits, scheme.block, scheme.group == 0 ? head_dim : scheme.group,
          kv_ends(part, type, head_dim)};
}

}  // namespace leq::gpu
