// How the numbers of a weight are stored: code kind, bits, and which numbers share a scale; not how
// the codes were chosen (a method). The names are those of settings and of the .leq file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

// A group (row, block, tensor) of weights or of activations whose largest |x| is below this has
// codes of value 0 and scale 1.
inline constexpr float kSmallestAbsmax = 1e-12f;

enum class CodeKind : std::uint8_t {
  f32,
  f16,
  bf16,   // floats, row-major, no scales
  int_,   // symmetric codes; 8 bits signed, fewer bits biased by 2^(bits-1)
  uint_,  // unsigned codes with a zero point for each scale
  nf4,    // index of one of 16 levels, times the largest value of 64 columns (tensor/nf4.h)
  b1,     // a sign and a second bit (tensor/b1.cpp)
  q4_k,   // GGUF's k types: scales of scales (tensor/super_blocks.h)
  q5_k,
  q6_k,
};

enum class Scaling : std::uint8_t { none, row, group, tensor };

struct QuantScheme {
  CodeKind kind = CodeKind::f32;
  int bits = 32;  // bits of one code
  Scaling scaling = Scaling::none;
  int group = 0;  // columns that share a scale, where scaling is group

  bool is_float() const { return scaling == Scaling::none; }
  // Codes under scales that are integers times the numbers of a superblock.
  bool is_super() const { return kind >= CodeKind::q4_k; }
  // Codes that inputs of integer codes are multiplied with.
  bool is_integer() const {
    return kind == CodeKind::int_ || kind == CodeKind::uint_ || is_super();
  }
  // The codes are unsigned numbers minus a zero point (2^(bits-1) for int): the inputs of such
  // weights are signed codes that come with their sums.
  bool is_offset() const { return is_integer() && (kind != CodeKind::int_ || bits < 8); }
  // 2^(bits-1) where the stored code is the number plus that, else 0.
  int bias() const { return kind == CodeKind::int_ && bits < 8 ? 1 << (bits - 1) : 0; }
  bool operator==(const QuantScheme&) const = default;
};

// "int4-g128" <-> value, by the grammar of docs/leq-format.md. nullopt where the grammar has no
// such scheme.
std::optional<QuantScheme> parse_scheme(std::string_view name);
std::string scheme_name(const QuantScheme& scheme);
// Every scheme of the grammar, without the short names ("int4" for "int4-g128").
std::vector<QuantScheme> all_schemes();
// Their names for a sentence: "f32, f16, ..., or one like int4-g128: ...".
std::string_view scheme_grammar();
// parse_scheme, with an error that lists what there is.
QuantScheme require_scheme(std::string_view name, std::string_view where);

}  // namespace leq
