// How the inputs of a linear are quantized. Code asks for the properties below, not for the kind
// itself, so a new kind is one more row of answers (docs/quantization.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace leq {

// A property of the linear, never of batch or device.
enum class ActKind : std::uint8_t {
  none,    // f32 inputs
  row,     // int8, one scale per row (token)
  g128,    // int8, one scale per row and 128 columns
  g32,     // int8, one scale per row and 32 columns
  tensor,  // int8, one scale for all rows, stored in the file
  online,  // int8, one scale for all rows, which follows the inputs from step to step
};
std::string_view act_name(ActKind act);    // "none", "row", "g128", "g32", ...
std::string_view act_inputs(ActKind act);  // for people: "f32", "int8 rows", ...
std::optional<ActKind> parse_act(std::string_view name);

// Codes of int8 instead of f32.
constexpr bool is_coded(ActKind act) { return act != ActKind::none; }
// Columns of one scale; 0: the whole row.
constexpr int scale_columns(ActKind act) {
  if (act == ActKind::g128) return 128;
  return act == ActKind::g32 ? 32 : 0;
}
// The scale is known before any input is.
constexpr bool has_stored_scale(ActKind act) { return act == ActKind::tensor; }
// The scale of a step's rows depends on all of them and on the steps before (online_scale.h).
constexpr bool has_moving_scale(ActKind act) { return act == ActKind::online; }

// When the scale of act online is updated by a step: before its inputs are quantized (no clipping),
// or after (inputs need one pass only; a few may be clipped).
enum class OnlineMode : std::uint8_t { safe, streaming };
std::string_view online_mode_name(OnlineMode mode);  // "safe", "streaming"
std::optional<OnlineMode> parse_online_mode(std::string_view name);

}  // namespace leq
