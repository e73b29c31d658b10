// The KV schemes: how the keys or the values of a cache are stored, a row of a table each. Names
// and help, sizes of pages and of saved sequences, what a plan counts and which kernels run follow
// from the row; a new scheme is a row, its kernels and its tests. Plain data: kernels of every
// device include it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leq {

// A saved sequence names its schemes by these numbers.
enum class KvType : std::uint8_t { f32, f16, int8 };

inline constexpr int kPageTokens = 64;
constexpr std::int64_t pages_for(std::int64_t positions) {
  return (positions + kPageTokens - 1) / kPageTokens;
}

enum class KvPart : std::uint8_t { keys, values };

// Which numbers of a kv head share an f16 scale and minimum.
enum class KvAlong : std::uint8_t {
  nothing,  // floats: there are none
  token,    // the channels of one position, `group` of them or all
  channel,  // one channel of `block` positions
};

struct KvScheme {
  KvType type = KvType::f32;
  std::string_view name;
  int bits = 0;  // of a stored number
  KvAlong keys = KvAlong::nothing, values = KvAlong::nothing;
  int group = 0;                                 // along tokens; 0: the whole head
  int block = 0;                                 // along channels
  int recent = 0;                                // newest positions that are kept in f16 too
  int sinks = 0;                                 // first positions, likewise
  std::array<std::string_view, 7> aliases = {};  // of other engines: this one is the closest

  constexpr bool coded() const { return keys != KvAlong::nothing; }
};

inline constexpr std::array<KvScheme, 3> kKvSchemes = {
    {{.type = KvType::f32, .name = "f32", .bits = 32},
     {.type = KvType::f16, .name = "f16", .bits = 16, .aliases = {"bf16"}},
     {.type = KvType::int8,
      .name = "int8",
      .bits = 8,
      .keys = KvAlong::token,
      .values = KvAlong::token,
      .aliases = {"q8_0", "q8", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}}}};

constexpr bool rows_follow_types() {
  for (std::size_t i = 0; i < kKvSchemes.size(); ++i) {
    if (kKvSchemes[i].type != static_cast<KvType>(i)) return false;
  }
  return true;
}
static_assert(rows_follow_types());

constexpr bool keeps_f16_copies() {
  for (const KvScheme& scheme : kKvSchemes) {
    if (scheme.recent > 0 || scheme.sinks > 0) return true;
  }
  return false;
}
static_assert(!keeps_f16_copies(), "no cache keeps f16 copies beside codes yet");

inline constexpr KvType kExactKv = KvType::f32;  // what a model computed, unrounded
inline constexpr KvType kUsualKv = KvType::f16;

constexpr const KvScheme& kv_scheme(KvType type) {
  return kKvSchemes[static_cast<std::size_t>(type)];
}
constexpr bool kv_coded(KvType type) { return kv_scheme(type).coded(); }

// Bytes of one position's numbers of a head, without scales, where they lie without gaps.
constexpr std::size_t kv_number_bytes(const KvScheme& scheme, int head_dim) {
  return (static_cast<std::size_t>(head_dim) * static_cast<std::size_t>(scheme.bits) + 7) / 8;
}

// Scales of a head's first `positions`, and as many minima.
constexpr std::size_t kv_scale_count(const KvScheme& scheme, KvPart part, int head_dim,
                                     std::int64_t positions) {
  const KvAlong along = part == KvPart::keys ? scheme.keys : scheme.values;
  const auto dims = static_cast<std::int64_t>(head_dim);
  std::int64_t count = 0;
  if (along == KvAlong::token) {
    count = positions * (scheme.group == 0 ? 1 : (dims + scheme.group - 1) / scheme.group);
  }
  if (along == KvAlong::channel) count = (positions + scheme.block - 1) / scheme.block * dims;
  return static_cast<std::size_t>(count);
}

}  // namespace leq
