#include "backend/kv_types.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

std::vector<std::string_view> named_types() {
  std::vector<std::string_view> names;
  for (const KvScheme& scheme : kKvSchemes) {
    names.push_back(scheme.name);
  }
  return names;
}

// All names as part of a sentence, for example "f32, f16 or int8".
std::string expected_names() {
  const std::vector<std::string_view> all = named_types();
  std::string names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names += i == 0 ? "" : i + 1 == all.size() ? " or " : ", ";
    names += all[i];
  }
  return names;
}

}  // namespace

std::string_view kv_type_name(KvType type) { return kv_scheme(type).name; }

std::string kv_type_names(std::string_view separator) {
  std::string names;
  for (const std::string_view name : named_types()) {
    if (!names.empty()) names += separator;
    names += name;
  }
  return names;
}

KvType parse_kv_type(std::string_view name, Setting setting) {
  for (const KvScheme& scheme : kKvSchemes) {
    if (scheme.name == name) return scheme.type;
  }
  std::string closest;
  for (const KvScheme& scheme : kKvSchemes) {
    const bool alias =
        !name.empty() && std::ranges::find(scheme.aliases, name) != scheme.aliases.end();
    if (alias) closest = "; the closest is " + std::string(scheme.name);
  }
  fail(setting, " ", name, ": expected ", expected_names(), closest);
}

std::vector<KvLayerTypes> parse_kv_layers(std::string_view text, Setting setting) {
  const auto refused = [&](std::string_view what) {
    fail(ErrorKind::bad_setting, setting, " ", printable(text), ": ", what,
         "; expected layers and a type, as 0-1,27=f16 or 3=int8/simq4");
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) refused("there is no =");
  const std::vector<std::string_view> types = split(text.substr(equals + 1), "/");
  if (types.size() > 2) refused("more than two types");
  const auto number = [&](std::string_view digits) {
    const std::optional<std::int64_t> found = parse_int(digits);
    if (!found || *found < 0 || *found > 1 << 20) refused("a layer is a number from 0 on");
    return found.value_or(0);
  };
  std::vector<KvLayerTypes> layers;
  for (const std::string_view range : split(text.substr(0, equals), ",")) {
    const std::size_t dash = range.find('-');
    KvLayerTypes one;
    one.first = number(range.substr(0, dash));
    one.last = dash == std::string_view::npos ? one.first : number(range.substr(dash + 1));
    if (one.last < one.first) refused("a range that ends before it begins");
    one.keys = parse_kv_type(types.front(), setting);
    one.values = parse_kv_type(types.back(), setting);
    layers.push_back(one);
  }
  return layers;
}

std::string kv_layers_text(std::span<const KvLayerTypes> layers) {
  std::string text;
  for (const KvLayerTypes& one : layers) {
    text += (text.empty() ? "" : " ") + std::to_string(one.first);
    if (one.last != one.first) text += "-" + std::to_string(one.last);
    text += "=" + std::string(kv_type_name(one.keys));
    if (one.values != one.keys) text += "/" + std::string(kv_type_name(one.values));
  }
  return text;
}

std::int64_t BatchView::end_position() const {
  std::int64_t end = 0;
  for (const SequenceRun& run : runs) end = std::max(end, run.end_position());
  return end;
}

}  // namespace leq
