// Properties of a JSON schema and its keywords that need no grammar.
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <map>
#include <set>

#include "base/text.h"
#include "grammar/schema_texts.h"

namespace leq {
namespace {

// Keywords that do not restrict values.
constexpr std::array<std::string_view, 24> kNotes = {
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "$anchor",
    "id",
    "$vocabulary",
    "contentMediaType",
    "discriminator",
    "externalDocs",
    "xml",
    "contentEncoding",
    "contentSchema",
    "$dynamicAnchor",
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
    {"string", {"pattern", "minLength", "maxLength", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
}};

std::set<std::string> constants_of(JsonNode schema) {
  std::set<std::string> found;
  if (const JsonNode one = schema.find("const")) found.insert(canonical(one));
  const JsonNode list = schema.find("enum");
  for (const JsonNode v : list) found.insert(canonical(v));
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

constexpr int kMaxSchemaDepth = 12;

// The subschema that a reference such as "#/$defs/x" names; nothing if there is none.
JsonNode referred(JsonNode root, std::string_view name) {
  if (name != "#" && !name.starts_with("#/")) return {};
  JsonNode at = root;
  for (const std::string& key : pointer_steps(name)) at = step_into(at, key);
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
    for (const JsonNode one : list) {
      if (auto found = all_types(one, root, depth + 1); !found.empty()) return found;
    }
    return {};
  }
  std::set<std::string> found = types_of(schema);
  if (found.empty() && (schema.find("properties") || schema.find("additionalProperties"))) {
    found.insert("object");
  }
  if (found.empty() && schema.find("items")) found.insert("array");
  return found;
}

}  // namespace

std::string canonical(JsonNode value) {
  if (value.is_number()) return text_of(decimal_of(value));
  if (value.is_array()) {
    std::string out = "[";
    for (const JsonNode one : value) out += canonical(one) + ",";
    return out + "]";
  }
  if (!value.is_object()) return value.dump();
  std::map<std::string, std::string> members;
  for (const JsonNode one : value) members[Json(one.key()).dump_any()] = canonical(one);
  std::string out = "{";
  for (const auto& [name, held] : members) out += name + ":" + held + ",";
  return out + "}";
}

bool allows_all(JsonNode schema) {
  for (const JsonNode k : schema) {
    if (!is_note(k.key())) return false;
  }
  return schema.is_object() || is_flag(schema, true);
}

std::string_view named_type(JsonNode schema, JsonNode root) {
  const auto named = [root](const auto& self, JsonNode at, int depth) -> std::string_view {
    if (depth > kMaxSchemaDepth) return "";
    if (const JsonNode name = at.find("$ref"); name.is_string()) {
      return self(self, referred(root, name.text()), depth + 1);
    }
    if (const JsonNode type = at.find("type")) return type.is_string() ? type.text() : "";
    std::string_view found = implied_type(at);
    for (const JsonNode one : at.find("allOf")) {
      if (found.empty()) found = self(self, one, depth + 1);
    }
    return found;
  };
  return named(named, schema, 0);
}

bool is_flag(JsonNode node, bool value) { return node.is_boolean() && node.boolean() == value; }

bool allows_any_name(JsonNode schema) {
  if (is_flag(schema, true)) return true;
  if (!schema.is_object() || schema.size() > 1) return false;
  const JsonNode type = schema.find("type");
  return schema.size() == 0 || (type.is_string() && type.text() == "string");
}

bool restricts_nothing(JsonNode schema, JsonNode keyword) {
  const std::string_view name = keyword.key();
  if (name == "uniqueItems") {
    const JsonNode most = schema.find("maxItems");
    return is_flag(keyword, false) || (most.is_number() && most.number() <= 1);
  }
  if (name == "format") {
    return !keyword.is_string() || use_of_format(keyword.text()) == FormatUse::describes;
  }
  if (name == "not") return is_flag(keyword, false);
  if (name == "allOf") {
    bool all = keyword.is_array();
    for (const JsonNode one : keyword) all = all && allows_all(one);
    return all;
  }
  if (name == "if") return !schema.find("then") && !schema.find("else");
  if (name == "then" || name == "else") return !schema.find("if");
  if (name == "minContains" || name == "maxContains") return !schema.find("contains");
  if (name == "dependentRequired" || name == "dependentSchemas" || name == "dependencies") {
    return keyword.is_object() && keyword.size() == 0;
  }
  // If properties are named, the grammar allows others only if additionalProperties is given.
  if (name == "unevaluatedProperties") {
    return is_flag(keyword, true) ||
           (schema.find("properties") && !schema.find("additionalProperties"));
  }
  return name == "unevaluatedItems" && is_flag(keyword, true);
}

bool refuses_some(JsonNode no, std::string_view type) {
  if (!no || is_flag(no, false)) return false;
  if (!no.is_object() || !has_only(no, {"const", "enum"}) || no.find("type")) return true;
  const JsonNode list = no.find("enum"), one = no.find("const");
  const auto is_of_type = [&](JsonNode value) {
    return type.empty() || type == value.type_name() || (type == "integer" && value.whole());
  };
  bool any = (one && is_of_type(one)) || (!one && !list);
  for (const JsonNode value : list) any = any || is_of_type(value);
  return any;
}

std::optional<std::vector<std::string_view>> refused_texts(JsonNode no) {
  const JsonNode one = no.find("const"), list = no.find("enum");
  if (!has_only(no, {"const", "enum"}) || no.find("type") || !one == !list) return std::nullopt;
  std::vector<std::string_view> texts;
  if (one.is_string()) texts.push_back(one.text());
  for (const JsonNode text : list) {
    if (text.is_string()) texts.push_back(text.text());
  }
  return texts;
}

void add_constants(JsonNode schema, JsonNode type, std::vector<std::string>& texts) {
  const JsonNode list = schema.find("enum"), one = schema.find("const");
  const std::string only = one ? one.dump() : std::string();
  const std::size_t values = list ? list.size() : one ? 1 : 0;
  for (std::size_t i = 0; i < values; ++i) {
    const JsonNode v = list ? list[i] : one;
    if (type && !has_type(v, type)) continue;
    std::string text = v.dump();
    if (!one || text == only) texts.push_back(std::move(text));
  }
}

bool are_few(JsonNode schema) {
  constexpr std::size_t kFew = 64;
  return (schema.find("enum") || schema.find("const")) && has_only(schema, {"enum", "const"}) &&
         schema.find("enum").size() <= kFew;
}

NumberRange range_of(JsonNode schema, const std::function<void(const std::string&)>& wrong) {
  NumberRange range;
  // In draft 4, bounds are exclusive by a flag.
  const auto take = [&](std::string_view keyword, std::optional<Decimal>& bound, bool& out,
                        bool exclusive, int inward) {
    const JsonNode node = schema.find(keyword);
    if (!node || (exclusive && node.is_boolean())) return;
    if (!node.is_number()) wrong("expected '" + std::string(keyword) + "' to be a number");
    const Decimal value = decimal_of(node);
    const int order = bound ? compare(value, *bound) * inward : 1;
    if (order > 0) out = exclusive;
    if (order == 0) out = out || exclusive;
    if (order > 0) bound = value;
  };
  take("minimum", range.least, range.above_least, false, 1);
  take("exclusiveMinimum", range.least, range.above_least, true, 1);
  take("maximum", range.most, range.below_most, false, -1);
  take("exclusiveMaximum", range.most, range.below_most, true, -1);
  const auto is_true = [&](std::string_view keyword) {
    const JsonNode node = schema.find(keyword);
    return node.is_boolean() && node.boolean();
  };
  range.above_least = range.above_least || is_true("exclusiveMinimum");
  range.below_most = range.below_most || is_true("exclusiveMaximum");
  return range;
}

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
      const JsonNode found = schema.find(keyword);
      if (found && (keyword != "format" || !restricts_nothing(schema, found))) return type;
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

bool requires_property(JsonNode schema, std::string_view name) {
  const JsonNode required = schema.find("required");
  for (const JsonNode r : required) {
    if (r.is_string() && r.text() == name) return true;
  }
  return false;
}

std::vector<std::string> pointer_steps(std::string_view reference) {
  std::vector<std::string> steps;
  if (reference.size() < 2) return steps;
  for (const std::string_view step : split(reference.substr(2), "/")) {
    std::string key;
    for (std::size_t i = 0; i < step.size(); ++i) {
      unsigned byte = 0;
      const char* const hex = step.data() + i + 1;
      const bool escaped = step[i] == '%' && i + 2 < step.size() &&
                           std::from_chars(hex, hex + 2, byte, 16).ptr == hex + 2;
      key += escaped ? static_cast<char>(byte) : step[i];
      if (escaped) i += 2;
    }
    steps.push_back(replace_all(replace_all(key, "~1", "/"), "~0", "~"));
  }
  return steps;
}

JsonNode step_into(JsonNode at, const std::string& key) {
  if (!at.is_array()) return at.find(key);
  const auto index = parse_int(key);
  return index && *index >= 0 ? at[static_cast<std::size_t>(*index)] : JsonNode();
}

namespace {

using Constants = std::set<std::string>;

// What tells the values of one alternative from those of others.
struct Marks {
  Constants constants, types;
  std::map<std::string_view, Constants> tags;  // of required properties
};

Marks marks_of(JsonNode schema) {
  Marks marks = {constants_of(schema), types_of(schema)};
  std::set<std::string_view> required;
  const JsonNode names = schema.find("required"), properties = schema.find("properties");
  for (const JsonNode name : names) {
    if (name.is_string()) required.insert(name.text());
  }
  for (const JsonNode p : properties) {
    if (!required.contains(p.key())) continue;
    if (Constants tags = constants_of(p); !tags.empty()) marks.tags[p.key()] = std::move(tags);
  }
  return marks;
}

bool disjoint(const Marks& a, const Marks& b) {
  const auto different = [](const Constants& x, const Constants& y) {
    return !x.empty() && !y.empty() &&
           std::ranges::none_of(x, [&](const auto& v) { return y.contains(v); });
  };
  if (different(a.constants, b.constants) || different(a.types, b.types)) return true;
  if (a.types != Constants{"object"} || a.types != b.types) return false;
  return std::ranges::any_of(a.tags, [&](const auto& tag) {
    const auto other = b.tags.find(tag.first);
    return other != b.tags.end() && different(tag.second, other->second);
  });
}

using Overlap = std::optional<std::pair<std::size_t, std::size_t>>;

// Two alternatives with a common constant, or one without constants and another one.
// `constants(i)`: null, or those that an alternative's values or one of its properties must have.
template <class OfAlternative>
Overlap common_constant(const std::vector<std::size_t>& which, const OfAlternative& constants) {
  std::map<std::string_view, std::size_t> owners;  // texts of requests: no hash table
  for (const std::size_t i : which) {
    const Constants* const own = constants(i);
    if (own == nullptr || own->empty()) return std::minmax(i, i == which[0] ? which[1] : which[0]);
    for (const std::string& value : *own) {
      const auto [known, is_new] = owners.emplace(value, i);
      if (!is_new && known->second != i) return std::pair(known->second, i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::pair<std::size_t, std::size_t>> may_hold_together(
    std::span<const JsonNode> alternatives) {
  constexpr std::size_t kFew = 32;       // are compared in pairs
  constexpr std::size_t kMaxNames = 16;  // properties that are tried
  std::vector<Marks> all;
  for (const JsonNode one : alternatives) all.push_back(marks_of(one));
  if (all.size() <= kFew) {
    for (std::size_t i = 1; i < all.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!disjoint(all[i], all[j])) return std::pair(j, i);
      }
    }
    return std::nullopt;
  }
  std::map<std::string_view, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].types.empty()) return std::minmax(i, std::size_t{i == 0});  // any type
    for (const std::string& type : all[i].types) by_type[type].push_back(i);
  }
  for (const auto& [type, which] : by_type) {
    if (which.size() < 2) continue;
    Overlap both = common_constant(which, [&](std::size_t i) { return &all[i].constants; });
    std::size_t tried = 0;
    for (const auto& [name, tags] : all[which[0]].tags) {
      if (!both || type != "object" || tried++ == kMaxNames) break;
      both = common_constant(which, [&, name = std::string_view(name)](std::size_t i) {
        const auto found = all[i].tags.find(name);
        return found == all[i].tags.end() ? nullptr : &found->second;
      });
    }
    if (both) return both;
  }
  return std::nullopt;
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
