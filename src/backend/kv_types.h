// The KV schemes, which define how the keys or values of a cache are stored. Each scheme is a row
// of a table; names and help texts, sizes of pages and of saved sequences, plans and the choice of
// kernels derive from the row. A new scheme needs a row, kernels and tests. The header has only
// plain data, because kernels of every device include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace leq {

// Saved sequences store these numbers, so that they must not change.
enum class KvType : std::uint8_t { f32, f16, int8, int4, simq8, simq4, simq2 };

inline constexpr int kPageTokens = 64;
constexpr std::int64_t pages_for(std::int64_t positions) {
  return (positions + kPageTokens - 1) / kPageTokens;
}

enum class KvPart : std::uint8_t { keys, values };

// The numbers of a kv head that share an f16 scale and minimum.
enum class KvAlong : std::uint8_t {
  nothing,  // floats have no scales
  token,    // all channels of one position, or `group` channels each
  channel,  // `block` positions of one channel
};

// The KV heads of a layer.
struct KvHeads {
  std::int64_t count = 0;  // H_kv
  std::int64_t dims = 0;   // d

  bool operator==(const KvHeads&) const = default;
};

struct KvScheme {
  KvType type = KvType::f32;
  std::string_view name;
  int bits = 0;  // bits of a stored number
  KvAlong keys = KvAlong::nothing, values = KvAlong::nothing;
  int group = 0;                                 // channels per scale along tokens; 0: all channels
  int block = 0;                                 // positions per scale along channels
  int recent = 0;                                // newest positions, which are also kept in f16
  int sinks = 0;                                 // first positions, which are also kept in f16
  bool packed = false;                           // several codes share a byte or a word of memory
  bool rotated = false;                          // each head is multiplied by a Hadamard matrix
  std::array<std::string_view, 7> aliases = {};  // names in other engines for which this is closest

  constexpr bool coded() const { return keys != KvAlong::nothing; }
  // Whole blocks are encoded at once; f16 copies are used until then.
  constexpr bool blocked() const { return block > 0; }
};

// SimQuant: keys have scales along channels in blocks, values along tokens.
constexpr KvScheme simquant(KvType type, std::string_view name, int bits, int group, int recent,
                            int block) {
  return {.type = type,
          .name = name,
          .bits = bits,
          .keys = KvAlong::channel,
          .values = KvAlong::token,
          .group = group,
          .block = block,
          .recent = recent,
          .sinks = 4,
          .packed = true};
}

constexpr KvScheme with_aliases(KvScheme scheme, std::array<std::string_view, 7> aliases) {
  scheme.aliases = aliases;
  return scheme;
}

inline constexpr KvScheme kInt4 = {.type = KvType::int4,
                                   .name = "int4",
                                   .bits = 4,
                                   .keys = KvAlong::token,
                                   .values = KvAlong::token,
                                   .packed = true,
                                   .rotated = true};

inline constexpr KvScheme kSimq8 = simquant(KvType::simq8, "simq8", 8, 0, 32, 32);
inline constexpr KvScheme kSimq4 = simquant(KvType::simq4, "simq4", 4, 64, 32, 32);
inline constexpr KvScheme kSimq2 = simquant(KvType::simq2, "simq2", 2, 32, 128, 32);

inline constexpr std::array<KvScheme, 7> kKvSchemes = {
    {{.type = KvType::f32, .name = "f32", .bits = 32},
     {.type = KvType::f16, .name = "f16", .bits = 16, .aliases = {"bf16"}},
     {.type = KvType::int8,
      .name = "int8",
      .bits = 8,
      .keys = KvAlong::token,
      .values = KvAlong::token,
      .aliases = {"q8_0", "q8", "q6_0", "q5_1", "q5_0"}},
     kInt4,
     kSimq8,
     with_aliases(kSimq4, {"q4_1", "q4_0", "q4", "iq4_nl", "simq", "kivi4"}),
     with_aliases(kSimq2, {"q2", "q2_k", "kivi2"})}};

constexpr bool rows_follow_types() {
  for (std::size_t i = 0; i < kKvSchemes.size(); ++i) {
    if (kKvSchemes[i].type != static_cast<KvType>(i)) return false;
  }
  return true;
}
static_assert(rows_follow_types());

// Kernels for unpacked types are tables indexed by KvType, whose first types these are.
inline constexpr std::size_t kUnpackedKvTypes = 3;
constexpr bool unpacked_types_are_first() {
  for (std::size_t i = 0; i < kKvSchemes.size(); ++i) {
    if (kKvSchemes[i].packed != (i >= kUnpackedKvTypes)) return false;
  }
  return true;
}
static_assert(unpacked_types_are_first());

inline constexpr KvType kExactKv = KvType::f32;  // stores what the model computed, unrounded
inline constexpr KvType kUsualKv = KvType::f16;

constexpr const KvScheme& kv_scheme(KvType type) {
  return kKvSchemes[static_cast<std::size_t>(type)];
}
constexpr bool kv_coded(KvType type) { return kv_scheme(type).coded(); }
constexpr bool kv_packed(KvType type) { return kv_scheme(type).packed; }

// Bytes of the numbers of one position of a head, stored without gaps and without scales.
constexpr std::size_t kv_number_bytes(const KvScheme& scheme, int head_dim) {
  return (static_cast<std::size_t>(head_dim) * static_cast<std::size_t>(scheme.bits) + 7) / 8;
}

// The number of groups of a position's channels; each group has a scale and a minimum.
constexpr int kv_groups(const KvScheme& scheme, int head_dim) {
  return scheme.group == 0 ? 1 : (head_dim + scheme.group - 1) / scheme.group;
}

// The number of scales of a head's first `positions` positions; there are as many minima.
constexpr std::size_t kv_scale_count(const KvScheme& scheme, KvPart part, int head_dim,
                                     std::int64_t positions) {
  const KvAlong along = part == KvPart::keys ? scheme.keys : scheme.values;
  const auto dims = static_cast<std::int64_t>(head_dim);
  std::int64_t count = 0;
  if (along == KvAlong::token) {
    count = positions * kv_groups(scheme, head_dim);
  }
  if (along == KvAlong::channel) count = (positions + scheme.block - 1) / scheme.block * dims;
  return static_cast<std::size_t>(count);
}

// The positions that are read as f16 copies instead of codes (docs/kv-cache.md): the first S, and
// blocks that end among the newest R. This depends only on the positions of the query and the key.
struct KvResidual {
  int sinks = 0;   // S
  int recent = 0;  // R
  int block = 0;   // B, a divisor of kPageTokens; 0: there are no copies

  constexpr bool copies() const { return block > 0; }
  // The query at `position` reads codes of [S, closed_for(position)) and f16 of other positions.
  constexpr std::int64_t closed_for(std::int64_t position) const {
    return whole_blocks(position + 1 - recent);
  }
  // After positions [0, length) have been appended, codes of [0, quantized(length)) exist.
  constexpr std::int64_t quantized(std::int64_t length) const {
    return whole_blocks(length - recent);
  }
  // A step that appends positions [first, end) needs codes of [quantized(first), quantized(end)).
  // Codes below whole_before are those of blocks that were whole before the step.
  constexpr std::int64_t whole_before(std::int64_t first, std::int64_t end) const {
    return quantized(end) < whole_blocks(first) ? quantized(end) : whole_blocks(first);
  }

  bool operator==(const KvResidual&) const = default;

 private:
  constexpr std::int64_t whole_blocks(std::int64_t positions) const {
    return block == 0 || positions < 0 ? 0 : positions / block * block;
  }
};

// Keys and values of a cache have the same residual: the larger of their schemes' numbers.
constexpr KvResidual kv_residual(KvType keys, KvType values) {
  const KvScheme &k = kv_scheme(keys), &v = kv_scheme(values);
  const auto larger = [](int a, int b) { return a > b ? a : b; };
  return {larger(k.sinks, v.sinks), larger(k.recent, v.recent), larger(k.block, v.block)};
}

std::string_view kv_type_name(KvType type);
// All names with a separator, for example "f32 | f16 | int8".
std::string kv_type_names(std::string_view separator);
// Parses a name of kv_type_name. Throws Error with the setting; for names of other engines ("q8_0")
// it suggests the closest type.
KvType parse_kv_type(std::string_view name, Setting setting);

// Layers [first, last] whose keys and values have types different from the other layers'.
struct KvLayerTypes {
  std::int64_t first = 0, last = 0;
  KvType keys = kUsualKv, values = kUsualKv;

  bool operator==(const KvLayerTypes&) const = default;
};
// Parses "0-1,27=f16" or "3=int8/simq4": layers, counted from 0, with one type for keys and values,
// or with a type each. Throws Error with the setting and the reason.
std::vector<KvLayerTypes> parse_kv_layers(std::string_view text, Setting setting);
// The inverse of parse_kv_layers, with entries separated by spaces: "0-1=f16 27=f16".
std::string kv_layers_text(std::span<const KvLayerTypes> layers);

// One layer of the cache. Page p begins at base + place(p) * page_bytes: layers with a sliding
// window may have a smaller memory of frames, where a page has one while some query can see it. The
// backend defines the layout within a page; on the CPU (docs/kv-cache.md):
//   float keys [H_kv][4][d][16], int8 keys [H_kv][4][ceil4(d)/4][16][4] then f16 s[H_kv][64],
//   m[H_kv][64], values [H_kv][64][d] (int8: then f16 s[H_kv][64], m[H_kv][64])
// Schemes that encode whole blocks have f16 copies of some pages. The copy of page p is page
// copies[p] of key_copies or value_copies, in the layout of f16; copies[p] is -1 without a copy.
struct KvLayer {
  KvType key_type = kUsualKv;
  KvType value_type = kUsualKv;
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::size_t key_page_bytes = 0;
  std::size_t value_page_bytes = 0;
  KvResidual residual = {};
  std::byte* key_copies = nullptr;  // null: keys have no copies
  std::byte* value_copies = nullptr;
  std::size_t copy_page_bytes = 0;
  std::span<const std::int32_t> copies = {};
  bool in_frames = false;
  std::span<const std::int32_t> frames = {};  // [pages], of layers in frames; -1: the page has none

  std::int32_t place(std::int32_t page) const {
    return in_frames ? frames[static_cast<std::size_t>(page)] : page;
  }
};

// Neighbouring rows of a batch that are consecutive positions of one sequence.
struct SequenceRun {
  std::int32_t sequence = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_position = 0;      // position of the first row
  std::span<const std::int32_t> pages;  // pages[position / 64], including the run's own positions
  // Fixed states, for layers that have them: the state before the run (null for zeros) and the
  // place of the state after it. Runs of one sequence write the same place, one after another.
  const std::byte* state_from = nullptr;
  std::byte* state_to = nullptr;

  std::int64_t end_position() const { return first_position + rows; }
};

struct BatchView {
  std::int64_t tokens = 0;
  std::span<const SequenceRun> runs;  // ascending; together rows 0..tokens-1

  // One more than the last position of all runs; 0 if there are no runs.
  std::int64_t end_position() const;
};

}  // namespace leq
