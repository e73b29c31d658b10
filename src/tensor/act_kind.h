// How the inputs of a linear are quantized. Other code tests the properties below, not the kind
// itself, so that a new kind only needs new results here (docs/quantization.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace leq {

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
