// The fixed parts of a .leq file, version 1 (docs/leq-format.md):
// preamble | tensor planes | blobs | JSON. Every plane and blob begins at a multiple of 64 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace leq {

// Between these limits, act_scale's inverse and products with weight scales are normal numbers.
inline constexpr float kSmallestActScale = 1e-20f;
inline constexpr float kLargestActScale = 1e20f;

inline constexpr std::array<char, 8> kLeqMagic = {'\x89', 'L', 'E', 'Q', '\r', '\n', '\x1a', '\n'};
inline constexpr std::uint32_t kLeqMajor = 1;  // files of another major version are refused
inline constexpr std::uint32_t kLeqMinor = 3;  // the newest version written; later ones can be read
inline constexpr std::uint64_t kLeqAlignment = 64;

// A feature that a file may list in "requires", which means that a reader must support it to
// compute the same results, and the minor version that introduced it. A file gets the lowest minor
// version that covers its requirements.
struct LeqFeature {
  std::string_view name;
  std::uint32_t minor_version;
};
inline constexpr std::array<LeqFeature, 25> kLeqFeatures = {
    {{"layers", 1},       {"rotary_dims", 2},  {"output_gate", 2},     {"delta_net", 2},
     {"experts", 2},      {"temperature", 2},  {"post_norm", 2},       {"logit_cap", 2},
     {"layer_rope", 3},   {"query_scale", 3},  {"embedding_scale", 3}, {"activation", 3},
     {"sinks", 3},        {"expert_bias", 3},  {"v_norm", 3},          {"layer_heads", 3},
     {"layer_scales", 3}, {"dense_beside", 3}, {"kv_of", 3},           {"layer_input", 3},
     {"short_conv", 3},   {"router", 3},       {"both_ways", 3},       {"embedding_projection", 3},
     {"unpadded", 3}}};

struct LeqPreamble {
  std::array<char, 8> magic;
  std::uint32_t major_version;
  std::uint32_t minor_version;
  std::uint64_t json_offset;
  std::uint64_t json_bytes;
  std::uint64_t json_xxh3;  // XXH3-64, seed 0
  std::uint64_t file_bytes;
  std::array<std::uint64_t, 2> reserved;  // 0
};
static_assert(sizeof(LeqPreamble) == 64);

// Reads the preamble from the first bytes of a file of `file_bytes` bytes and checks all fields.
// Throws Error naming `source` if it is no .leq file, has another major version, or is truncated.
LeqPreamble parse_preamble(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                           std::string_view source);

std::uint64_t checksum(std::span<const std::byte> bytes);  // XXH3-64, seed 0
std::string checksum_text(std::uint64_t value);            // 16 lower-case hex digits
std::optional<std::uint64_t> parse_checksum(std::string_view text);

}  // namespace leq
