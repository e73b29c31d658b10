// The layout of packed codes of 4 bits (simq4) of keys and values in a head's part of a page: the
// operand order of mma m16n8k16, so that a lane loads its operands with few instructions.
//
// A unit has 16 positions x 16 channels. For the number at position s and channel c of a unit, k is
// its index along the sum of the product (keys: c, values: s), and n its index along the other
// axis. Lane 4 (n % 8) + k % 8 / 2 has the number, in the low half of a word if k is even, in the
// high half if k is odd. A unit is one word per lane; values: bit 8 (k / 8) + 4 (n / 8) of the
// half, keys: bit 8 (n / 8) + 4 (k / 8), so that a position's codes fill bytes. A lane's words are
// contiguous in groups. A group of values has all positions of 16 channels, four words. A group of
// keys has four words, of neighbouring channels, if the number of channels of a head is a multiple
// of 64, otherwise one word. Channels are padded to 16.
//
// Scales, and likewise minima, along a sum (key channels in blocks, value positions) are in the
// order in which a lane loads them, four per unit. The scales of two units are contiguous for
// values, and for keys with groups of four words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kv_types.h"
#include "cuda/layout/layout.h"

namespace leq::gpu {

constexpr int kv_units(int head_dim) { return (head_dim + 15) / 16; }  // units in a row of channels

// Returns the bytes of one head's codes in a page.
constexpr std::int64_t kv_code_bytes(int head_dim) {
  return std::int64_t{kKvPageTokens} * kv_units(head_dim) * 8;
}

struct KvCodePlace {
  int word = 0;   // index of a 32-bit word
  int shift = 0;  // position of the code's lowest bit

  bool operator==(const KvCodePlace&) const = default;
};

// Returns whether a lane's words of neighbouring units of keys are contiguous.
constexpr bool kv_wide(int head_dim) { return head_dim % 64 == 0; }
// Returns the number of contiguous words of a lane.
constexpr int kv_words_together(KvPart part, int head_dim) {
  return part == KvPart::values || kv_wide(head_dim) ? 4 : 1;
}

// Returns the index of the word with the codes of `lane` in unit (s16, c16).
constexpr int kv_lane_word(KvPart part, int head_dim, int s16, int c16, int lane) {
  const int each = kv_words_together(part, head_dim);
  if (part == KvPart::values) return (c16 * 32 + lane) * 4 + s16;
  return (s16 * kv_units(head_dim) + c16 / each * each) * 32 + lane * each + c16 % each;
}

constexpr KvCodePlace kv_code_place(KvPart part, int head_dim, int slot, int c) {
  const int s16 = slot / 16, s = slot % 16, d = c % 16;
  const int k = part == KvPart::keys ? d : s, n = part == KvPart::keys ? s : d;
  const int lane = 4 * (n % 8) + k % 8 / 2;
  const int word = kv_lane_word(part, head_dim, s16, c / 16, lane);
  const int high = part == KvPart::keys ? n / 8 : k / 8, low = part == KvPart::keys ? k / 8 : n / 8;
  return {word, 16 * (k % 2) + 8 * high + 4 * low};
}

// The position and channel of the code at bit `shift` of a word: the inverse of kv_code_place.
struct KvCodeOwner {
  int slot = 0, channel = 0;
};
constexpr KvCodeOwner kv_code_owner(KvPart part, int head_dim, int word, int shift) {
  const bool keys = part == KvPart::keys;
  const int of_row = kv_units(head_dim);
  const int each = kv_words_together(part, head_dim);
  const int i = word / (32 * each) * each + word % each, lane = word / each % 32;
  const int s16 = keys ? i / of_row : i % 4, c16 = keys ? i % of_row : i / 4;
  const int upper = shift / 8 % 2, lower = shift / 4 % 2;
  const int high_k = keys ? lower : upper, high_n = keys ? upper : lower;
  const int k = 8 * high_k + lane % 4 * 2 + shift / 16, n = 8 * high_n + lane / 4;
  return keys ? KvCodeOwner{16 * s16 + n, 16 * c16 + k} : KvCodeOwner{16 * s16 + k, 16 * c16 + n};
}

// The index of number i along a sum. A lane has four contiguous numbers of a unit, or eight of two.
constexpr int kv_operand_order(bool by_two, int i) {
  const int unit = i / 16, k = i % 16, lane = k % 8 / 2, in_unit = k / 8 * 2 + k % 2;
  return by_two ? unit / 2 * 32 + lane * 8 + unit % 2 * 4 + in_unit
                : unit * 16 + lane * 4 + in_unit;
}
// Returns the index of the scale (and minimum) of a key channel in its block's row, or of a value
// position in its group. Heads that do not consist of whole units are never operands.
constexpr int kv_key_end(int head_dim, int c) {
  return head_dim % 16 == 0 ? kv_operand_order(kv_wide(head_dim), c) : c;
}
constexpr int kv_value_end(int slot) { return kv_operand_order(true, slot); }

// Returns the number of scales (and of minima) of one head in a page: groups [groups][64], blocks
// [blocks][d], in the orders above.
constexpr int kv_ends(KvPart part, KvType type, int head_dim) {
  return static_cast<int>(kv_scale_count(kv_scheme(type), part, head_dim, kKvPageTokens));
}

// The properties of a packed type for kernels, from its row of the table of schemes.
struct KvCodes {
  int block = 0;  // positions in a block; 0: not packed
  int group = 0;  // channels that share a scale (along tokens)
  int ends = 0;   // kv_ends

  constexpr bool packed() const { return block > 0; }
};
constexpr KvCodes codes_of(KvPart part, KvType type, int head_dim) {
  const KvScheme& scheme = kv_scheme(type);
  if (!scheme.packed) return {};
  return {scheme.block, scheme.group == 0 ? head_dim : scheme.group, kv_ends(part, type, head_dim)};
}

}  // namespace leq::gpu
