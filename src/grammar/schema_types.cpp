// Properties of a JSON schema that need no grammar.
#include "grammar/json_schema.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace leq {
namespace {

std::set<std::string> constants_of(JsonNode schema) {
  std::set<std::string> found;
  if (const JsonNode one = schema.find("const")) found.insert(one.dump());
  const JsonNode list = schema.find("enum");
  for (const JsonNode v : list) found.insert(v.dump());
  return found;
}

// Empty if the schema allows any type.
std::set<std::string> types_of(JsonNode schema) {
  std::set<std::string> found;
  const auto add = [&](std::string_view type) {
    found.emplace(type == "integer" ? "number" : type);
  };
  const JsonNode type = schema.find("type"), one = schema.find("const");
  if (type.is_string()) add(type.text());
  for (const JsonNode t : type) {
    if (t.is_string()) add(t.text());
  }
  if (!found.empty()) return found;
  if (one) add(one.type_name());
  for (const JsonNode v : schema.find("enum")) add(v.type_name());
  return found;
}

bool requires_property(JsonNode schema, std::string_view name) {
  const JsonNode required = schema.find("required");
  for (const JsonNode r : required) {
    if (r.is_string() && r.text() == name) return true;
  }
  return false;
}

constexpr int kMaxSchemaDepth = 12;

// The subschema that a reference such as "#/$defs/x" names; nothing if there is none.
JsonNode referred(JsonNode root, std::string_view name) {
  if (!name.starts_with("#/")) return name == "#" ? root : JsonNode();
  JsonNode at = root;
  for (const std::string_view step : split(name.substr(2), "/")) {
    at = at.find(replace_all(replace_all(step, "~1", "/"), "~0", "~"));
    if (!at) return {};
  }
  return at;
}

// All types that a schema names, including its references and alternatives; empty if one of them
// names no type.
std::set<std::string> all_types(JsonNode schema, JsonNode root, int depth) {
  if (depth > kMaxSchemaDepth) return {};
  if (const JsonNode name = schema.find("$ref"); name.is_string()) {
    return all_types(referred(root, name.text()), root, depth + 1);
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    const JsonNode list = schema.find(keyword);
    if (list.size() == 0) continue;
    std::set<std::string> found;
    for (const JsonNode one : list) {
      const auto own = all_types(one, root, depth + 1);
      if (own.empty()) return {};
      found.insert(own.begin(), own.end());
    }
    return found;
  }
  if (const JsonNode list = schema.find("allOf"); list.size() > 0 && !schema.find("type")) {
    return all_types(list.first(), root, depth + 1);
  }
  std::set<std::string> found = types_of(schema);
  if (found.empty() && (schema.find("properties") || schema.find("additionalProperties"))) {
    found.insert("object");
  }
  if (found.empty() && schema.find("items")) found.insert("array");
  return found;
}

}  // namespace

TextUse text_use(JsonNode schema, JsonNode root) {
  const auto types = all_types(schema, root, 0);
  if (types.empty()) return TextUse::unknown;
  return types.contains("string") ? TextUse::allowed : TextUse::no;
}

bool allows_null(JsonNode schema, JsonNode root) {
  return all_types(schema, root, 0).contains("null");
}

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
  for (const JsonNode p : properties) {
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
    for (const JsonNode one : type) {
      if (has_type(value, one)) return true;
    }
    return false;
  }
  if (!type.is_string()) return false;
  if (type.text() == "integer") return value.whole().has_value();
  return type.text() == value.type_name();
}

}  // namespace leq
