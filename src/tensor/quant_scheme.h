// The types in which numbers are stored: elements of tensors, schemes of quantized weights, and the
// codes of the inputs of linears.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

// The element types that tensors are stored in.
enum class DType : std::uint8_t { f32, f16, bf16, i8, u8, i16, i32 };

std::string_view dtype_name(DType dtype);  // "bf16"
std::size_t dtype_bytes(DType dtype);

// How the numbers of a weight are stored: code kind, bits, and which numbers share a scale. It does
// not matter how codes were chosen. Names are those of settings and of the .leq file.

// A group (row, block, tensor) of weights or activations whose largest |x| is below this gets codes
// of value 0 and scale 1.
inline constexpr float kSmallestAbsmax = 1e-12f;

enum class CodeKind : std::uint8_t {
  f32,
  f16,
  bf16,   // floats, row-major, no scales
  int_,   // symmetric codes; 8 bits are signed, fewer are biased by 2^(bits-1)
  uint_,  // unsigned codes with a zero point for each scale
  nf4,    // index of one of 16 levels, times the size of 64 columns (tensor/nf4.h)
  b1,     // a sign and a second bit (tensor/b1.cpp)
  mxfp4,  // one of 16 integers in a table, times the scale of 32 columns (tensor/table_codes.h)
  iq4_nl,
  nvfp4,  // mxfp4's integers, times the scale of 16 columns
  q4_k,   // GGUF's k types: superblock scales (tensor/super_blocks.h)
  q5_k,
  q6_k,
};

enum class Scaling : std::uint8_t { none, row, group, tensor };

struct QuantScheme {
  CodeKind kind = CodeKind::f32;
  int bits = 32;  // bits per code
  Scaling scaling = Scaling::none;
  int group = 0;  // columns that share a scale, for Scaling::group

  bool is_float() const { return scaling == Scaling::none; }
  // Whether the scales of codes are integers times numbers of a superblock.
  bool is_super() const { return kind >= CodeKind::q4_k; }
  // Whether codes themselves are integers (k types included).
  bool is_integer() const {
    return kind == CodeKind::int_ || kind == CodeKind::uint_ || is_super();
  }
  // Whether codes select an integer from a table.
  bool has_table() const { return kind >= CodeKind::mxfp4 && kind <= CodeKind::nvfp4; }
  // Whether a scale is one byte, an E4M3 number without sign.
  bool has_byte_scales() const { return kind == CodeKind::nvfp4; }
  // Whether weights can be multiplied with integer inputs.
  bool takes_codes() const { return is_integer() || has_table(); }
  // Whether codes are unsigned numbers minus a zero point (2^(bits-1) for int). The inputs of such
  // weights are signed codes with sums of codes.
  bool is_offset() const { return takes_codes() && (kind != CodeKind::int_ || bits < 8); }
  // The most columns of a weight: the exact sum of a row's products, up to 127 times a code, stays
  // within 32 bits, and kernels have memory for sums of inputs.
  std::int64_t max_columns() const {
    const bool bytes = kind == CodeKind::uint_ && bits == 8 && scaling == Scaling::row;
    return is_float() ? std::numeric_limits<std::int64_t>::max() : bytes ? 1 << 16 : 1 << 17;
  }
  // 2^(bits-1) if stored codes are biased by that number, otherwise 0.
  int bias() const { return kind == CodeKind::int_ && bits < 8 ? 1 << (bits - 1) : 0; }
  bool operator==(const QuantScheme&) const = default;
};

// Converts "int4-g128" to a scheme, according to the grammar in docs/leq-format.md. nullopt if the
// grammar has no such scheme.
std::optional<QuantScheme> parse_scheme(std::string_view name);
std::string scheme_name(const QuantScheme& scheme);
// The names as part of a sentence: "f32, f16, ..., or one like int4-g128: ...".
std::string_view scheme_grammar();
// Like parse_scheme, but throws an Error that lists the valid names.
QuantScheme require_scheme(std::string_view name, std::string_view where);

// How the inputs of a linear are quantized. Other code tests the properties below, not the kind
// itself, so that a new kind only needs new results here (docs/quantization.md).

// A property of the linear, which never depends on the batch or device.
enum class ActKind : std::uint8_t {
  none,    // f32 inputs
  row,     // int8, one scale per row (token)
  g128,    // int8, one scale per row and 128 columns
  g32,     // int8, one scale per row and 32 columns
  tensor,  // int8, one scale for all rows, stored in the file
  online,  // int8, one scale for all rows, adapted to the inputs from step to step
};
std::string_view act_name(ActKind act);    // "none", "row", "g128", "g32", ...
std::string_view act_inputs(ActKind act);  // for display: "f32", "int8 rows", ...
std::optional<ActKind> parse_act(std::string_view name);

// Whether inputs are int8 codes instead of f32.
constexpr bool is_coded(ActKind act) { return act != ActKind::none; }
// Number of columns that share a scale; 0: the whole row.
constexpr int scale_columns(ActKind act) {
  if (act == ActKind::g128) return 128;
  return act == ActKind::g32 ? 32 : 0;
}
// Whether the scale is stored, so that it is known before the inputs.
constexpr bool has_stored_scale(ActKind act) { return act == ActKind::tensor; }
// Whether the scale depends on all rows of a step and on earlier steps (online_scale.h).
constexpr bool has_moving_scale(ActKind act) { return act == ActKind::online; }

// When a step updates the scale of act online: before its inputs are quantized, so that nothing is
// clipped, or afterwards, so that inputs are read once and a few may be clipped.
enum class OnlineMode : std::uint8_t { safe, streaming };
std::string_view online_mode_name(OnlineMode mode);  // "safe", "streaming"
std::optional<OnlineMode> parse_online_mode(std::string_view name);

}  // namespace leq
