#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
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

constexpr int kMostSchemaDepth = 12;

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
  if (depth > kMostSchemaDepth) return {};
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

// JSON Schema (draft 2020-12) as a grammar of the texts that the schema accepts.

namespace {

using Expr = GrammarBuilder::Expr;

constexpr JsonLimits kSchemaLimits = {.bytes = 4u << 20, .values = 50'000};
constexpr std::size_t kMostNotes = 20;

// Keywords that do not restrict values.
constexpr std::array<std::string_view, 24> kNotes = {
    "title",      "description",     "default",          "examples",       "example",
    "deprecated", "readOnly",        "writeOnly",        "$schema",        "$id",
    "$comment",   "$defs",           "definitions",      "$anchor",        "format",
    "id",         "$vocabulary",     "contentMediaType", "discriminator",  "externalDocs",
    "xml",        "contentEncoding", "contentSchema",    "$dynamicAnchor",
};

bool is_note(std::string_view keyword) {
  return keyword.starts_with("x-") || std::ranges::find(kNotes, keyword) != kNotes.end();
}

struct TypeKeyword {
  std::string_view keyword, type;  // the keyword restricts values of this type only
};
constexpr std::array<TypeKeyword, 26> kTypeKeywords = {{
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"propertyNames", "object"},
    {"patternProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"dependentRequired", "object"},
    {"dependentSchemas", "object"},
    {"unevaluatedProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"additionalItems", "array"},
    {"contains", "array"},
    {"unevaluatedItems", "array"},
    {"pattern", "string"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
}};

std::string_view type_of_keyword(std::string_view keyword) {
  const auto* found = std::ranges::find(kTypeKeywords, keyword, &TypeKeyword::keyword);
  return found == kTypeKeywords.end() ? std::string_view() : found->type;
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

bool is_constant(JsonNode schema) {
  if (!schema.find("const") && !schema.find("enum")) return false;
  for (const JsonNode k : schema) {
    if (k.key() != "const" && k.key() != "enum" && k.key() != "type" && !is_note(k.key())) {
      return false;
    }
  }
  return true;
}

// Whether the schema has keywords other than this one and `type`.
bool has_other_keywords(JsonNode schema, std::string_view keyword) {
  for (const JsonNode k : schema) {
    if (k.key() != keyword && k.key() != "type" && !is_note(k.key())) return true;
  }
  return false;
}

}  // namespace

std::vector<std::int32_t> SchemaReader::read(std::span<const SchemaPlace> wanted) {
  std::vector<std::int32_t> rules;
  for (const SchemaPlace& place : wanted) rules.push_back(rule_of(place.schema, place.path));
  // A loop instead of recursion, because schemas may refer to each other in chains of any length.
  while (!waiting_.empty()) {
    const Waiting next = waiting_.back();
    waiting_.pop_back();
    place_ = next.place;
    builder_.define(next.rule, value(next.schema));
  }
  return rules;
}

void SchemaReader::note_ignored(std::string_view what) {
  if (notes_ == nullptr) wrong(what, " is not supported here");
  note(std::string(what) + " is not enforced");
}

void SchemaReader::note(std::string_view text) {
  std::string line = std::string(source_) + ": " + place_ + ": " + std::string(text);
  if (notes_->size() < kMostNotes && std::ranges::find(*notes_, line) == notes_->end()) {
    notes_->push_back(std::move(line));
  }
}

void SchemaReader::unsupported(const std::string& what) const {
  if (notes_ == nullptr) wrong(what);
  throw Unsupported{what};
}

std::int32_t SchemaReader::rule_of(JsonNode schema, const std::string& place) {
  const std::string name = prefix_ + "schema " + place;
  const std::int32_t rule = builder_.rule(name);
  if (asked_.insert(rule).second) waiting_.push_back({rule, schema, place});
  return rule;
}

// Reports ignored keywords, except those that do not restrict values of the schema's type.
void SchemaReader::check_keywords(JsonNode schema, std::initializer_list<std::string_view> known) {
  const JsonNode type = schema.find("type");
  for (const JsonNode k : schema) {
    if (is_note(k.key()) || std::ranges::find(known, k.key()) != known.end()) continue;
    const std::string_view applies_to = type_of_keyword(k.key());
    if (type && !applies_to.empty() && !may_be(type, applies_to)) continue;
    if (restricts_nothing(schema, k)) continue;
    note_ignored("the keyword '" + printable(k.key()) + "'");
  }
}

Expr SchemaReader::value(JsonNode schema) {
  if (notes_ == nullptr) return exact_value(schema);
  const std::string place = place_;
  try {
    return exact_value(schema);
  } catch (const Unsupported& refused) {
    place_ = place;
    note(refused.what + "; only the type is enforced");
    return loose_value(schema);
  }
}

// A value that is checked only for its type, if the schema names one.
Expr SchemaReader::loose_value(JsonNode schema) {
  const JsonNode type = schema.find("type");
  const std::string_view name = type.is_string() ? std::string_view(type.text())
                                : type           ? ""
                                                 : implied_type(schema);
  if (name == "object") return parts_.object();
  if (name == "array") return parts_.array();
  if (name == "string") return parts_.string();
  if (name == "integer") return parts_.integer();
  if (name == "number") return parts_.number();
  return parts_.value();
}

Expr SchemaReader::exact_value(JsonNode schema) {
  if (schema.is_boolean()) {
    if (schema.boolean()) return parts_.value();
    return builder_.choice({});  // no value is valid
  }
  if (!schema.is_object()) wrong("expected a schema, an object or a boolean");
  if (schema.find("$ref")) return reference(schema);
  if (schema.find("enum") || schema.find("const")) return constants(schema);
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    // In loose mode, other keywords (such as properties) take precedence over alternatives.
    const bool beside = notes_ != nullptr && has_other_keywords(schema, keyword);
    if (schema.find(keyword) && !beside) return alternatives(schema, keyword);
  }
  if (schema.find("allOf")) return all_of(schema);
  const JsonNode type = schema.find("type");
  if (type.is_array()) return one_of_types(schema, type);
  if (type) {
    if (!type.is_string()) wrong("expected 'type' to be a text or a list");
    return typed(schema, type.text());
  }
  return typed(schema, implied_type(schema));
}

std::string_view SchemaReader::implied_type(JsonNode schema) const {
  for (const auto& [keyword, type] : kTypeKeywords) {
    if (schema.find(keyword)) return type;
  }
  return "";
}

Expr SchemaReader::one_of_types(JsonNode schema, JsonNode types) {
  std::vector<Expr> ways;
  // Each type is built from the keywords that apply to it.
  for (const JsonNode type : types) {
    if (!type.is_string()) wrong("expected the types to be texts");
    ways.push_back(typed(schema, type.text()));
  }
  return builder_.choice(std::move(ways));
}

Expr SchemaReader::typed(JsonNode schema, std::string_view type) {
  const std::initializer_list<std::string_view> kTyped = {
      "type",          "properties",        "required",         "additionalProperties",
      "propertyNames", "patternProperties", "minProperties",    "maxProperties",
      "items",         "prefixItems",       "additionalItems",  "minItems",
      "maxItems",      "minLength",         "maxLength",        "pattern",
      "minimum",       "maximum",           "exclusiveMinimum", "exclusiveMaximum",
  };
  check_keywords(schema, kTyped);
  if (type.empty()) return parts_.value();
  if (type == "null") return parts_.null();
  if (type == "boolean") return parts_.boolean();
  if (type == "string") return string(schema);
  if (type == "integer") return integer(schema);
  if (type == "number") return number(schema);
  if (type == "array") return array(schema);
  if (type == "object") return object(schema);
  wrong("there is no type '", printable(type), "'");
}

Expr SchemaReader::reference(JsonNode schema) {
  check_keywords(schema, {"$ref"});
  const JsonNode name = schema.find("$ref");
  if (!name.is_string()) wrong("expected '$ref' to be a text");
  const auto [target, place] = resolve(name.text());
  return builder_.call(rule_of(target, place));
}

// The subschema that a reference names, and its path.
std::pair<JsonNode, std::string> SchemaReader::resolve(std::string_view name) const {
  if (!name.starts_with('#')) {
    unsupported("$ref '" + printable(name) +
                "': only references within the schema, #/..., are supported");
  }
  JsonNode at = root_;
  std::string place = "#";
  if (name == "#") return {at, place};
  if (!name.starts_with("#/"))
    unsupported("$ref '" + printable(name) + "': expected #/ and a path");
  for (const std::string_view step : split(name.substr(2), "/")) {
    const std::string key = replace_all(replace_all(step, "~1", "/"), "~0", "~");
    JsonNode next = at.find(key);
    if (at.is_array()) {
      const auto index = parse_int(key);
      next = index && *index >= 0 ? at[static_cast<std::size_t>(*index)] : JsonNode();
    }
    if (!next) wrong("$ref '", printable(name), "': there is no '", printable(key), "'");
    at = next;
    place += "/" + std::string(step);
  }
  return {at, place};
}

Expr SchemaReader::alternatives(JsonNode schema, std::string_view keyword) {
  const JsonNode list = schema.find(keyword);
  if (!list.is_array() || list.size() == 0) wrong("expected '", keyword, "' to be a list");
  check_keywords(schema, {keyword, "type"});
  const Step step(*this, keyword);
  const JsonNode type = schema.find("type");
  std::vector<Expr> ways;
  std::vector<std::string> constants;  // alternatives that are constants only
  std::set<std::string> known;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonNode one = list[i];
    const Step inner(*this, std::to_string(i));
    const JsonNode own = one.find("type");
    const bool agrees = type && type.is_string() && own.is_string() && own.text() == type.text();
    if (type && !agrees) {
      note_ignored("a 'type' beside '" + std::string(keyword) +
                   "' that an alternative does not repeat");
    }
    const std::size_t before = constants.size();
    if (is_constant(one)) {
      add_constants(one, own, constants);
    } else {
      ways.push_back(value(one));
    }
    bool is_new = ways.empty();  // constants are compared with all others at once
    for (std::size_t c = before; c < constants.size(); ++c) {
      is_new = known.insert(constants[c]).second && is_new;
    }
    if (keyword == "oneOf" && !is_new) require_disjoint(list, i);
  }
  if (!constants.empty()) ways.push_back(parts_.one_of(constants));
  return builder_.choice(std::move(ways));
}

// oneOf requires that exactly one alternative is valid, which a grammar cannot check.
void SchemaReader::require_disjoint(JsonNode list, std::size_t place) {
  for (std::size_t i = 0; i < place; ++i) {
    if (disjoint(target_of(list[place]), target_of(list[i]))) continue;
    if (notes_ != nullptr) return note_ignored("that no other alternative of 'oneOf' holds");
    wrong("it may hold together with alternative ", i,
          " of 'oneOf': give both a different type, or a required property with different "
          "constants, or write anyOf");
  }
}

JsonNode SchemaReader::target_of(JsonNode schema) const {
  for (int i = 0; i < 20; ++i) {
    const JsonNode name = schema.find("$ref");
    if (!name.is_string()) return schema;
    schema = resolve(name.text()).first;
  }
  return schema;
}

// An object that has the properties of all subschemas of allOf.
Expr SchemaReader::all_of(JsonNode schema) {
  const JsonNode list = schema.find("allOf");
  if (!list.is_array() || list.size() == 0) wrong("expected 'allOf' to be a list");
  bool only = list.size() == 1;
  for (const JsonNode k : schema) {
    only = only && (k.key() == "allOf" || is_note(k.key()));
  }
  const Step step(*this, "allOf");
  if (only) return value(list.first());
  std::vector<Property> all;
  bool closed = false;
  check_keywords(schema, {"allOf", "type", "properties", "required", "additionalProperties"});
  take_properties(schema, all, closed);
  for (const JsonNode one : list) {
    const JsonNode target = target_of(one);
    check_keywords(target, {"type", "properties", "required", "additionalProperties"});
    take_properties(target, all, closed);
  }
  if (closed) unsupported("additionalProperties within 'allOf' is not supported");
  return object_of(all, JsonNode(), Others::refused);
}

std::vector<std::int32_t> add_schema(GrammarBuilder& builder, JsonParts& parts,
                                     const SchemaSource& source,
                                     std::span<const SchemaPlace> wanted) {
  require(bool{source.root}, source.name, ": there is no schema");
  return SchemaReader(builder, parts, source).read(wanted);
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(JsonNode schema, std::string_view source,
                                                         SchemaNotes* notes) {
  GrammarBuilder builder(source);
  JsonParts parts(builder);
  const SchemaPlace whole = {schema, "#"};
  const auto rules = add_schema(builder, parts, {schema, source, "", notes}, std::span(&whole, 1));
  return builder.finish(rules.front());
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(std::string_view text,
                                                         std::string_view source,
                                                         SchemaNotes* notes) {
  const Json tree = parse_json(text, source, kSchemaLimits);
  return from_json_schema(tree, source, notes);
}

std::shared_ptr<const Grammar> Grammar::any_json_object() {
  return from_json_schema(R"({"type": "object"})", "JSON");
}

}  // namespace leq
