// How the numbers of a weight are stored: code kind, bits, and which numbers share a scale. Never
// who chose the codes (that is a method). The names are those of --type and of the .leq file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace leq {

enum class CodeKind : std::uint8_t {
  f32,
  f16,
  bf16,   // floats, row-major, no scales
  int_,   // symmetric codes; 8 bits signed, fewer bits biased by 2^(bits-1)
  uint_,  // unsigned codes with a zero point for each scale
  nf4,
  b1,
};

enum class Scaling : std::uint8_t { none, row, group, tensor };

struct QuantScheme {
  CodeKind kind = CodeKind::f32;
  int bits = 32;  // bits of one code
  Scaling scaling = Scaling::none;
  int group = 0;  // columns that share a scale, where scaling is group

  bool is_float() const { return scaling == Scaling::none; }
  bool operator==(const QuantScheme&) const = default;
};

// "int4-g128" <-> value, by the grammar of docs/leq-format.md. nullopt where the grammar has no
// such scheme; whether this version can store or run one is another question (see supported()).
std::optional<QuantScheme> parse_scheme(std::string_view name);
std::string scheme_name(const QuantScheme& scheme);
// Schemes that this version stores and runs: f32, f16, bf16, int8, int8-tensor, int8-g32/64/128,
// int4-g32/64/128.
bool supported(const QuantScheme& scheme);
// parse_scheme + supported, with an error that lists what there is.
QuantScheme require_scheme(std::string_view name, std::string_view where);

}  // namespace leq
