#include "tensor/act_kind.h"

#include <array>

namespace leq {
namespace {

constexpr std::array<std::string_view, 6> kActNames = {"none", "row",    "g128",
                                                       "g32",  "tensor", "online"};
constexpr std::array<std::string_view, 6> kActInputs = {"f32",
                                                        "int8 rows",
                                                        "int8 groups of 128",
                                                        "int8 groups of 32",
                                                        "int8 of one scale",
                                                        "int8 of a moving scale"};

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
std::string_view act_inputs(ActKind act) { return kActInputs[static_cast<std::size_t>(act)]; }

std::optional<ActKind> parse_act(std::string_view name) {
  return find_name<ActKind>(kActNames, name);
}

std::string_view online_mode_name(OnlineMode mode) {
  return kOnlineModeNames[static_cast<std::size_t>(mode)];
}

std::optional<OnlineMode> parse_online_mode(std::string_view name) {
  return find_name<OnlineMode>(kOnlineModeNames, name);
}

}  // namespace leq
