// Properties of a JSON schema and its keywords that need no grammar.
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>

#include "base/text.h"

namespace leq {
namespace {

// Keywords that do not restrict values.
constexpr std::array<std::string_view, 24> kNotes = {
    "title",      "description",     "default",          "examples",       "example",
    "deprecated", "readOnly",        "writeOnly",        "$schema",        "$id",
    "$comment",   "$defs",           "definitions",      "$anchor",        "format",
    "id",         "$vocabulary",     "contentMediaType", "discriminator",  "externalDocs",
    "xml",        "contentEncoding", "contentSchema",    "$dynamicAnchor",
};

// The keywords that restrict values of one type only.
struct TypeKeywords {
  std::string_view type;
  std::vector<std::string_view> keywords;
};
const std::array<TypeKeywords, 4> kTypeKeywords = {{
    {"object",
     {"properties", "required", "additionalProperties", "propertyNames", "patternProperties",
      "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
      "unevaluatedProperties"}},
    {"array",
     {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "additionalItems", "contains",
      "unevaluatedItems"}},
    {"string", {"pattern", "minLength", "maxLength"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
}};

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

bool is_note(std::string_view keyword) {
  return keyword.starts_with("x-") || std::ranges::find(kNotes, keyword) != kNotes.end();
}

std::string_view type_of_keyword(std::string_view keyword) {
  for (const auto& [type, keywords] : kTypeKeywords) {
    if (std::ranges::find(keywords, keyword) != keywords.end()) return type;
  }
  return "";
}

bool may_be(JsonNode type, std::string_view wanted) {
  const auto is = [&](std::string_view name) {
    return name == wanted || (name == "integer" && wanted == "number");
  };
  if (type.is_string()) return is(type.text());
  for (const JsonNode one : type) {
    if (!one.is_string() || is(one.text())) return true;
  }
  return !type.is_array();
}

bool has_only(JsonNode schema, std::initializer_list<std::string_view> keywords) {
  for (const JsonNode k : schema) {
    const bool known = std::ranges::find(keywords, k.key()) != keywords.end();
    if (!known && k.key() != "type" && !is_note(k.key())) return false;
  }
  return true;
}

std::string_view implied_type(JsonNode schema) {
  for (const auto& [type, keywords] : kTypeKeywords) {
    for (const std::string_view keyword : keywords) {
      if (schema.find(keyword)) return type;
    }
  }
  return "";
}

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
