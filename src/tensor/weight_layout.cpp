#include "tensor/weight_layout.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 5> kActNames = {"none", "row", "g128", "tensor", "online"};

constexpr std::array<std::string_view, 2> kOnlineModeNames = {"safe", "streaming"};

template <class Kind, std::size_t n>
std::optional<Kind> find_name(const std::array<std::string_view, n>& names, std::string_view name) {
  for (std::size_t i = 0; i < n; ++i) {
    if (names[i] == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view act_name(ActKind act) { return kActNames[static_cast<std::size_t>(act)]; }

std::optional<ActKind> parse_act(std::string_view name) {
  return find_name<ActKind>(kActNames, name);
}

std::string_view online_mode_name(OnlineMode mode) {
  return kOnlineModeNames[static_cast<std::size_t>(mode)];
}

std::optional<OnlineMode> parse_online_mode(std::string_view name) {
  return find_name<OnlineMode>(kOnlineModeNames, name);
}

std::int64_t sum_group(const QuantScheme& scheme, ActKind act, std::int64_t columns) {
  const std::int64_t all = round_up(columns, kPaddedColumns);
  const std::int64_t of_weight = scheme.scaling == Scaling::group ? scheme.group : all;
  const std::int64_t of_act = act == ActKind::g128 ? 128 : all;
  return std::min(of_weight, of_act);
}

bool sums_are_per_row(const QuantScheme& scheme, ActKind act) {
  return scheme.scaling != Scaling::group && act != ActKind::none && act != ActKind::g128;
}

CodePlanes code_planes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  if (scheme.bits != 3) return {scheme.bits, 0, 0};
  return {2, 1, round_up(rows, kPanelRows) * round_up(columns, kPaddedColumns) / 4};
}

PlaneBytes plane_bytes(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                       std::int64_t columns) {
  PlaneBytes bytes;
  const auto bits = static_cast<std::uint64_t>(scheme.bits);
  if (scheme.is_float()) {
    bytes.codes = static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(columns) * bits / 8;
    return bytes;
  }
  const auto padded_rows = static_cast<std::uint64_t>(round_up(rows, kPanelRows));
  const auto padded_columns = static_cast<std::uint64_t>(round_up(columns, kPaddedColumns));
  const bool grouped = scheme.scaling == Scaling::group;
  const std::uint64_t scales =
      grouped ? padded_rows * (padded_columns / static_cast<std::uint64_t>(scheme.group))
              : padded_rows;
  bytes.codes = padded_rows * padded_columns / 8 * bits;
  if (const CodeFormat* format = code_format(scheme.kind)) {
    const PlaneBytes own =
        format->planes(round_up(rows, kPanelRows), round_up(columns, kPaddedColumns));
    bytes.scales = own.scales;
    bytes.zeros = own.zeros;
    return bytes;
  }
  bytes.scales = scales * (grouped ? 2 : 4);
  if (scheme.kind == CodeKind::uint_) bytes.zeros = scales;
  if (!scheme.is_offset() && act != ActKind::none) {
    const auto group = static_cast<std::uint64_t>(sum_group(scheme, act, columns));
    bytes.sums = sums_are_per_row(scheme, act) ? padded_rows * 4
                                               : padded_rows * (padded_columns / group) * 2;
  }
  return bytes;
}

std::uint64_t stored_bytes(const WeightView& weight) {
  const PlaneBytes planes = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  return planes.codes + planes.scales + planes.zeros + planes.sums;
}

}  // namespace leq
