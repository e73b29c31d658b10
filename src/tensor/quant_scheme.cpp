#include "tensor/quant_scheme.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

struct StoredType {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<StoredType, 7> kTypes = {
    {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"u8", 1}, {"i16", 2}, {"i32", 4}}};

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
  const auto* found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Kind>(found - names.begin());
}

}  // namespace

std::string_view dtype_name(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].name; }
std::size_t dtype_bytes(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)].bytes; }

std::optional<QuantScheme> parse_scheme(std::string_view name) {
  if (name == "f32") return QuantScheme{CodeKind::f32, 32, Scaling::none, 0};
  if (name == "f16") return QuantScheme{CodeKind::f16, 16, Scaling::none, 0};
  if (name == "bf16") return QuantScheme{CodeKind::bf16, 16, Scaling::none, 0};
  for (const CodeFormat& format : code_formats()) {
    if (name == format.name) return format.scheme();
  }
  QuantScheme scheme{CodeKind::int_, 0, Scaling::row, 0};
  if (name.starts_with("uint")) {
    scheme.kind = CodeKind::uint_;
    name.remove_prefix(4);
  } else if (name.starts_with("int")) {
    name.remove_prefix(3);
  } else {
    return std::nullopt;
  }
  if (name.empty() || std::string_view("8432").find(name[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  scheme.bits = name[0] - '0';
  name.remove_prefix(1);
  if (name.empty()) {
    if (scheme.bits < 8) scheme = {scheme.kind, scheme.bits, Scaling::group, 128};
    return scheme;
  }
  if (name == "-tensor" && scheme.kind == CodeKind::int_ && scheme.bits == 8) {
    scheme.scaling = Scaling::tensor;
    return scheme;
  }
  for (const int group : {32, 64, 128}) {
    if (name == "-g" + std::to_string(group)) {
      scheme.scaling = Scaling::group;
      scheme.group = group;
      return scheme;
    }
  }
  return std::nullopt;
}

std::string scheme_name(const QuantScheme& scheme) {
  if (scheme.kind == CodeKind::f32) return "f32";
  if (scheme.kind == CodeKind::f16) return "f16";
  if (scheme.kind == CodeKind::bf16) return "bf16";
  if (const CodeFormat* format = code_format(scheme.kind)) return std::string(format->name);
  std::string name = scheme.kind == CodeKind::int_ ? "int" : "uint";
  name += std::to_string(scheme.bits);
  if (scheme.scaling == Scaling::tensor) name += "-tensor";
  if (scheme.scaling == Scaling::group) name += "-g" + std::to_string(scheme.group);
  return name;
}

std::string_view scheme_grammar() {
  static const std::string kGrammar = [] {
    std::string grammar = "f32, f16, bf16, int8, int8-tensor, uint8, ";
    for (const CodeFormat& format : code_formats()) grammar += std::string(format.name) + ", ";
    return grammar + "or one like int4-g128: (int|uint)(8|4|3|2)-g(32|64|128)";
  }();
  return kGrammar;
}

QuantScheme require_scheme(std::string_view name, std::string_view where) {
  const auto scheme = parse_scheme(name);
  require(scheme.has_value(), where, ": unknown type \"", printable(name), "\"; use one of ",
          scheme_grammar());
  return *scheme;
}

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
