#include "generate/grammar/schema_facts.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace leq {
namespace {

std::set<std::string> constants_of(JsonNode schema) {
  std::set<std::string> found;
  if (const JsonNode one = schema.find("const")) found.insert(one.dump());
  const JsonNode list = schema.find("enum");
  for (JsonNode v = list.first(); v; v = v.next()) found.insert(v.dump());
  return found;
}

// None: any.
std::set<std::string> types_of(JsonNode schema) {
  std::set<std::string> found;
  const auto add = [&](std::string_view type) {
    found.emplace(type == "integer" ? "number" : type);
  };
  const JsonNode type = schema.find("type"), one = schema.find("const");
  if (type.is_string()) add(type.text());
  for (JsonNode t = type.first(); t; t = t.next()) {
    if (t.is_string()) add(t.text());
  }
  if (!found.empty()) return found;
  if (one) add(one.type_name());
  for (JsonNode v = schema.find("enum").first(); v; v = v.next()) add(v.type_name());
  return found;
}

bool requires_property(JsonNode schema, std::string_view name) {
  const JsonNode required = schema.find("required");
  for (JsonNode r = required.first(); r; r = r.next()) {
    if (r.is_string() && r.text() == name) return true;
  }
  return false;
}

}  // namespace

bool disjoint(JsonNode a, JsonNode b) {
  const auto different = [](const std::set<std::string>& x, const std::set<std::string>& y) {
    return !x.empty() && !y.empty() &&
           std::ranges::none_of(x, [&](const auto& v) { return y.contains(v); });
  };
  if (different(constants_of(a), constants_of(b)) || different(types_of(a), types_of(b))) {
    return true;
  }
  if (types_of(a) != std::set<std::string>{"object"} || types_of(a) != types_of(b)) return false;
  const JsonNode properties = a.find("properties");
  for (JsonNode p = properties.first(); p; p = p.next()) {
    const JsonNode other = b.find("properties").find(p.key());
    if (other && requires_property(a, p.key()) && requires_property(b, p.key()) &&
        different(constants_of(p), constants_of(other))) {
      return true;
    }
  }
  return false;
}

bool has_type(JsonNode value, JsonNode type) {
  if (type.is_array()) {
    for (JsonNode one = type.first(); one; one = one.next()) {
      if (has_type(value, one)) return true;
    }
    return false;
  }
  if (!type.is_string()) return false;
  if (type.text() == "integer") return value.whole().has_value();
  return type.text() == value.type_name();
}

}  // namespace leq
