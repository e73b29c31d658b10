// JSON Schema (draft 2020-12) as a grammar: what a model may write so that the schema accepts it.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "generate/grammar/json_parts.h"
#include "generate/grammar/schema_facts.h"
#include "generate/grammar/schema_rules.h"

namespace leq {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr JsonLimits kSchemaLimits = {.bytes = 4u << 20, .values = 50'000};

// Keywords that say nothing about what is valid.
constexpr std::array<std::string_view, 17> kNotes = {
    "title",           "description",     "default",     "examples", "example",
    "deprecated",      "readOnly",        "writeOnly",   "$schema",  "$id",
    "$comment",        "$defs",           "definitions", "$anchor",  "format",
    "contentEncoding", "contentMediaType"};

bool is_note(std::string_view keyword) {
  return std::ranges::find(kNotes, keyword) != kNotes.end();
}

struct Property {
  std::string_view name;
  JsonNode schema;  // nothing: any value
  bool required = false;
};

class SchemaReader {
 public:
  SchemaReader(GrammarBuilder& builder, JsonParts& parts, const SchemaSource& source)
      : root_(source.root),
        source_(source.name),
        prefix_(source.prefix),
        builder_(builder),
        parts_(parts) {}

  std::vector<std::int32_t> read(std::span<const SchemaPlace> wanted) {
    std::vector<std::int32_t> rules;
    for (const SchemaPlace& place : wanted) rules.push_back(rule_of(place.schema, place.path));
    // A list in the place of recursion: schemas refer to each other in chains of any length.
    while (!waiting_.empty()) {
      const Waiting next = waiting_.back();
      waiting_.pop_back();
      place_ = next.place;
      builder_.define(next.rule, value(next.schema));
    }
    return rules;
  }

 private:
  struct Waiting {
    std::int32_t rule;
    JsonNode schema;
    std::string place;
  };

  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": ", place_, ": ", parts...);
  }

  // Holds a step further down in the schema for as long as it is there.
  class Step {
   public:
    Step(SchemaReader& reader, std::string_view name)
        : reader_(reader), length_(reader.place_.size()) {
      reader_.place_ += "/" + printable(name);
    }
    ~Step() { reader_.place_.resize(length_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    SchemaReader& reader_;
    std::size_t length_;
  };

  std::int32_t rule_of(JsonNode schema, const std::string& place) {
    const std::string name = prefix_ + "schema " + place;
    const std::int32_t rule = builder_.rule(name);
    if (asked_.insert(rule).second) waiting_.push_back({rule, schema, place});
    return rule;
  }

  // Refuses keywords that would be ignored.
  void check_keywords(JsonNode schema, std::initializer_list<std::string_view> known) const {
    for (JsonNode k = schema.first(); k; k = k.next()) {
      if (is_note(k.key()) || std::ranges::find(known, k.key()) != known.end()) continue;
      wrong("the keyword '", printable(k.key()), "' is not supported here");
    }
  }

  Expr value(JsonNode schema) {
    if (schema.is_boolean()) {
      if (schema.boolean()) return parts_.value();
      return builder_.choice({});  // nothing is valid
    }
    if (!schema.is_object()) wrong("expected a schema, an object or a boolean");
    if (schema.find("$ref")) return reference(schema);
    if (schema.find("enum") || schema.find("const")) return constants(schema);
    if (schema.find("anyOf")) return alternatives(schema, "anyOf");
    if (schema.find("oneOf")) return alternatives(schema, "oneOf");
    if (schema.find("allOf")) return all_of(schema);
    const JsonNode type = schema.find("type");
    if (type.is_array()) return one_of_types(schema, type);
    if (type) {
      if (!type.is_string()) wrong("expected 'type' to be a text or a list");
      return typed(schema, type.text());
    }
    return typed(schema, implied_type(schema));
  }

  std::string_view implied_type(JsonNode schema) const {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kImplied = {
        {{"properties", "object"},
         {"required", "object"},
         {"additionalProperties", "object"},
         {"items", "array"},
         {"prefixItems", "array"},
         {"minItems", "array"},
         {"maxItems", "array"},
         {"pattern", "string"},
         {"minLength", "string"},
         {"maxLength", "string"},
         {"minimum", "number"},
         {"maximum", "number"},
         {"exclusiveMinimum", "number"}}};
    for (const auto& [keyword, type] : kImplied) {
      if (schema.find(keyword)) return type;
    }
    return "";
  }

  Expr one_of_types(JsonNode schema, JsonNode types) {
    std::vector<Expr> ways;
    // Each type is asked for the keywords that are its own.
    for (JsonNode type = types.first(); type; type = type.next()) {
      if (!type.is_string()) wrong("expected the types to be texts");
      ways.push_back(typed(schema, type.text(), Others::allowed));
    }
    check_keywords(
        schema, {"type", "properties", "required", "additionalProperties", "items", "prefixItems",
                 "minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern",
                 "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
    return builder_.choice(std::move(ways));
  }

  enum class Others { refused, allowed };  // keywords of other types

  Expr typed(JsonNode schema, std::string_view type, Others others = Others::refused) {
    const auto check = [&](std::initializer_list<std::string_view> known) {
      if (others == Others::refused) check_keywords(schema, known);
    };
    if (type.empty()) {
      check({});
      return parts_.value();
    }
    if (type == "null" || type == "boolean") {
      check({"type"});
      return type == "null" ? parts_.null() : parts_.boolean();
    }
    if (type == "string") {
      check({"type", "minLength", "maxLength", "pattern"});
      return string(schema);
    }
    if (type == "integer" || type == "number") {
      check({"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
      return type == "integer" ? integer(schema) : number(schema);
    }
    if (type == "array") {
      check({"type", "items", "prefixItems", "minItems", "maxItems", "uniqueItems"});
      return array(schema);
    }
    if (type == "object") {
      check({"type", "properties", "required", "additionalProperties"});
      return object(schema);
    }
    wrong("there is no type '", printable(type), "'");
  }

  std::int64_t count(JsonNode schema, std::string_view keyword, std::int64_t fallback) const {
    const JsonNode found = schema.find(keyword);
    if (!found) return fallback;
    const auto value = found.whole();
    if (!value || *value < 0) wrong("expected '", keyword, "' to be a whole number, 0 or more");
    if (*value > GrammarBuilder::kMostTimes) {
      // No reply comes near: a large upper bound is none.
      if (keyword.starts_with("max")) return GrammarBuilder::kNoLimit;
      wrong("'", keyword, "' is ", *value, ", at most ", GrammarBuilder::kMostTimes,
            " is supported");
    }
    return *value;
  }

  Expr string(JsonNode schema) {
    GrammarBuilder& b = builder_;
    const JsonNode pattern = schema.find("pattern"), format = schema.find("format");
    const std::int64_t least = count(schema, "minLength", 0);
    const std::int64_t most = count(schema, "maxLength", GrammarBuilder::kNoLimit);
    const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
    const std::string_view known =
        format.is_string() ? format_pattern(format.text()) : std::string_view();
    if ((pattern && (counted || !known.empty())) || (counted && !known.empty())) {
      wrong("'pattern', 'format' and lengths together are not supported");
    }
    if (pattern && !pattern.is_string()) wrong("expected 'pattern' to be a text");
    if (pattern || !known.empty()) {
      const std::string_view expression = pattern ? std::string_view(pattern.text()) : known;
      return b.sequence(
          {b.text("\""),
           pattern_expression(b, parts_, expression, std::string(source_) + ": " + place_),
           b.text("\"")});
    }
    if (!counted) return parts_.string();
    if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxLength is less than minLength");
    return b.sequence({b.text("\""), b.repeat(parts_.character(), least, most), b.text("\"")});
  }

  // A bound, made inclusive for whole numbers.
  std::optional<std::int64_t> bound(JsonNode schema, std::string_view inclusive,
                                    std::string_view exclusive, std::int64_t inward) const {
    std::optional<std::int64_t> found;
    for (const std::string_view keyword : {inclusive, exclusive}) {
      const JsonNode node = schema.find(keyword);
      if (!node) continue;
      const auto whole = node.whole();
      constexpr std::int64_t kMost = 1'000'000'000'000'000'000;
      if (!whole || *whole > kMost || *whole < -kMost) {
        wrong("expected '", keyword, "' to be a whole number of at most 18 digits");
      }
      const std::int64_t value = *whole + (keyword == exclusive ? inward : 0);
      found = !found ? value : inward > 0 ? std::max(*found, value) : std::min(*found, value);
    }
    return found;
  }

  Expr integer(JsonNode schema) {
    const auto least = bound(schema, "minimum", "exclusiveMinimum", 1);
    const auto most = bound(schema, "maximum", "exclusiveMaximum", -1);
    if (least && most && *least > *most)
      wrong("no whole number is between ", *least, " and ", *most);
    return parts_.integer_in(least, most);
  }

  Expr number(JsonNode schema) {
    if (schema.find("exclusiveMinimum") || schema.find("exclusiveMaximum")) {
      wrong("'exclusiveMinimum' and 'exclusiveMaximum' are supported for integers alone");
    }
    const auto least = bound(schema, "minimum", "", 1);
    const auto most = bound(schema, "maximum", "", -1);
    if (!least && !most) return parts_.number();
    if (least && most && *least > *most) wrong("no number is between ", *least, " and ", *most);
    return parts_.number_in(least, most);
  }

  Expr constants(JsonNode schema) {
    check_keywords(schema, {"enum", "const", "type"});
    std::vector<Expr> ways;
    const JsonNode list = schema.find("enum"), one = schema.find("const");
    if (list && one) wrong("'enum' and 'const' together are not supported");
    if (list && !list.is_array()) wrong("expected 'enum' to be a list");
    const JsonNode type = schema.find("type");
    for (JsonNode v = one ? one : list.first(); v; v = one ? JsonNode() : v.next()) {
      if (type && !has_type(v, type)) continue;
      ways.push_back(builder_.text(v.dump()));
    }
    if (ways.empty()) wrong("no value of 'enum' or 'const' is of the 'type'");
    return builder_.choice(std::move(ways));
  }

  Expr reference(JsonNode schema) {
    check_keywords(schema, {"$ref"});
    const JsonNode name = schema.find("$ref");
    if (!name.is_string()) wrong("expected '$ref' to be a text");
    const auto [target, place] = resolve(name.text());
    return builder_.call(rule_of(target, place));
  }

  // What a reference within the schema names, and its place.
  std::pair<JsonNode, std::string> resolve(std::string_view name) const {
    if (!name.starts_with('#')) {
      wrong("$ref '", printable(name),
            "': only references within the schema, #/..., are supported");
    }
    JsonNode at = root_;
    std::string place = "#";
    if (name == "#") return {at, place};
    if (!name.starts_with("#/")) wrong("$ref '", printable(name), "': expected #/ and a path");
    for (const std::string_view step : split(name.substr(2), "/")) {
      const std::string key = replace_all(replace_all(step, "~1", "/"), "~0", "~");
      JsonNode next = place == "#" ? at.find(key) : member(place, at, key);
      if (at.is_array()) {
        const auto index = parse_int(key);
        next = index && *index >= 0 ? at.first() : JsonNode();
        for (std::int64_t i = 0; next && index && i < *index; ++i) next = next.next();
      }
      if (!next) wrong("$ref '", printable(name), "': there is no '", printable(key), "'");
      at = next;
      place += "/" + std::string(step);
    }
    return {at, place};
  }

  // Members of the root's members are looked up often: definitions, above all.
  JsonNode member(const std::string& place, JsonNode object, const std::string& key) const {
    if (std::ranges::count(place, '/') != 1) return object.find(key);
    const auto [known, is_new] = members_.try_emplace(place);
    for (JsonNode m = is_new ? object.first() : JsonNode(); m; m = m.next()) {
      known->second.emplace(m.key(), m);
    }
    const auto found = known->second.find(key);
    return found == known->second.end() ? JsonNode() : found->second;
  }

  Expr alternatives(JsonNode schema, std::string_view keyword) {
    check_keywords(schema, {keyword, "type"});
    const JsonNode list = schema.find(keyword);
    if (!list.is_array() || list.size() == 0) wrong("expected '", keyword, "' to be a list");
    const Step step(*this, keyword);
    const JsonNode type = schema.find("type");
    std::vector<Expr> ways;
    std::int64_t i = 0;
    for (JsonNode one = list.first(); one; one = one.next(), ++i) {
      const Step inner(*this, std::to_string(i));
      const JsonNode own = one.find("type");
      if (type && (!type.is_string() || !own.is_string() || own.text() != type.text())) {
        wrong("a 'type' beside '", keyword, "' is supported where each alternative says the same");
      }
      if (keyword == "oneOf") require_disjoint(list, one, i);
      ways.push_back(value(one));
    }
    return builder_.choice(std::move(ways));
  }

  // oneOf wants exactly one to hold, which a grammar cannot see: alternatives that may both hold
  // are refused.
  void require_disjoint(JsonNode list, JsonNode one, std::int64_t place) const {
    std::int64_t i = 0;
    for (JsonNode other = list.first(); i < place; other = other.next(), ++i) {
      if (!disjoint(target_of(one), target_of(other))) {
        wrong("it may hold together with alternative ", i,
              " of 'oneOf': give both a different type, or a required property with different "
              "constants, or write anyOf");
      }
    }
  }

  JsonNode target_of(JsonNode schema) const {
    for (int i = 0; i < 20; ++i) {
      const JsonNode name = schema.find("$ref");
      if (!name.is_string()) return schema;
      schema = resolve(name.text()).first;
    }
    return schema;
  }

  // Objects whose properties are those of all.
  Expr all_of(JsonNode schema) {
    const JsonNode list = schema.find("allOf");
    if (!list.is_array() || list.size() == 0) wrong("expected 'allOf' to be a list");
    bool only = list.size() == 1;
    for (JsonNode k = schema.first(); k; k = k.next())
      only = only && (k.key() == "allOf" || is_note(k.key()));
    const Step step(*this, "allOf");
    if (only) return value(list.first());
    std::vector<Property> all;
    bool closed = false;
    take_properties(schema, all, closed,
                    {"allOf", "type", "properties", "required", "additionalProperties"});
    for (JsonNode one = list.first(); one; one = one.next()) {
      take_properties(target_of(one), all, closed,
                      {"type", "properties", "required", "additionalProperties"});
    }
    if (closed) wrong("additionalProperties within 'allOf' is not supported");
    return object_of(all, JsonNode(), Others::refused);
  }

  void take_properties(JsonNode schema, std::vector<Property>& all, bool& closed,
                       std::initializer_list<std::string_view> known) const {
    check_keywords(schema, known);
    const JsonNode type = schema.find("type");
    if (type && !(type.is_string() && type.text() == "object")) {
      wrong("'allOf' is supported for objects alone");
    }
    const JsonNode more = schema.find("additionalProperties");
    closed = closed || (more && !(more.is_boolean() && more.boolean()));
    collect(schema, all);
  }

  // Properties in the schema's order, then those that are only required.
  void collect(JsonNode schema, std::vector<Property>& all) const {
    const JsonNode properties = schema.find("properties"), required = schema.find("required");
    if (properties && !properties.is_object()) wrong("expected 'properties' to be an object");
    if (required && !required.is_array()) wrong("expected 'required' to be a list");
    std::set<std::string_view> names;
    for (const Property& p : all) names.insert(p.name);
    for (JsonNode p = properties.first(); p; p = p.next()) {
      if (!names.insert(p.key()).second)
        wrong("the property '", printable(p.key()), "' stands twice");
      all.push_back({p.key(), p, false});
    }
    for (JsonNode r = required.first(); r; r = r.next()) {
      if (!r.is_string()) wrong("expected the names in 'required' to be texts");
      if (names.insert(r.text()).second) all.push_back({r.text(), JsonNode(), false});
    }
    std::set<std::string_view> wanted;
    for (JsonNode r = required.first(); r; r = r.next()) wanted.insert(r.text());
    for (Property& p : all) p.required = p.required || wanted.contains(p.name);
  }

  Expr object(JsonNode schema) {
    const JsonNode more = schema.find("additionalProperties");
    std::vector<Property> all;
    collect(schema, all);
    const bool refuses_more = more.is_boolean() && !more.boolean();
    for (const Property& p : all) {
      if (refuses_more && !p.schema) {
        wrong("'", printable(p.name), "' is required, and additionalProperties allows it not");
      }
    }
    // Where a schema names properties, others come only where it speaks of them.
    const bool open = more ? !refuses_more : all.empty();
    return object_of(all, more, open ? Others::allowed : Others::refused);
  }

  // `more`: the schema of other properties, where they are allowed.
  Expr object_of(const std::vector<Property>& all, JsonNode more, Others others) {
    GrammarBuilder& b = builder_;
    const Step step(*this, "properties");
    const std::string prefix = prefix_ + "members " + std::to_string(objects_++) + " ";
    // By how many properties are done, and whether one has been written.
    const auto rule_at = [&](std::size_t i, bool any) {
      return b.rule(prefix + std::to_string(i) + (any ? " more" : ""));
    };
    for (std::size_t i = 0; i <= all.size(); ++i) {
      std::optional<Expr> member;
      if (i < all.size()) member = member_of(all[i]);
      for (const bool any : {false, true}) {
        if (any && i == 0) continue;
        if (i == all.size()) {
          b.define(rule_at(i, any), other_members(all, more, others, any));
          continue;
        }
        std::vector<Expr> parts;
        if (any) parts = {b.text(","), parts_.space()};
        parts.push_back(*member);
        parts.push_back(b.call(rule_at(i + 1, true)));
        std::vector<Expr> ways = {b.sequence(std::move(parts))};
        if (!all[i].required) ways.push_back(b.call(rule_at(i + 1, any)));
        b.define(rule_at(i, any), b.choice(std::move(ways)));
      }
    }
    return b.sequence({b.text("{"), parts_.space(), b.call(rule_at(0, false)), b.text("}")});
  }

  Expr member_of(const Property& property) {
    GrammarBuilder& b = builder_;
    const Step step(*this, property.name);
    return b.sequence({b.text("\""), parts_.written(property.name), b.text("\":"), parts_.space(),
                       property.schema ? value(property.schema) : parts_.value()});
  }

  // The others up to the closing bracket, with the space in front of it.
  Expr other_members(const std::vector<Property>& all, JsonNode more, Others others, bool any) {
    GrammarBuilder& b = builder_;
    const Expr close = any ? parts_.space() : b.nothing();
    if (others == Others::refused) return close;
    std::vector<std::string_view> names;
    for (const Property& p : all) names.push_back(p.name);
    const Step step(*this, "additionalProperties");
    const Expr key = names.empty() ? parts_.string() : parts_.string_but(names);
    const Expr held = more.is_object() ? value(more) : parts_.value();
    const Expr member = b.sequence({key, b.text(":"), parts_.space(), held});
    const Expr next = b.sequence({b.text(","), parts_.space(), member});
    const Expr list = b.repeat(next, 0, GrammarBuilder::kNoLimit);
    if (any) return b.sequence({list, close});
    return b.choice({b.nothing(), b.sequence({member, list, parts_.space()})});
  }

  Expr array(JsonNode schema) {
    GrammarBuilder& b = builder_;
    const JsonNode items = schema.find("items"), prefix = schema.find("prefixItems");
    if (prefix && !prefix.is_array()) wrong("expected 'prefixItems' to be a list");
    if (const JsonNode unique = schema.find("uniqueItems");
        unique && !(unique.is_boolean() && !unique.boolean())) {
      wrong("the keyword 'uniqueItems' is not supported here");
    }
    const std::int64_t least = count(schema, "minItems", 0);
    const std::int64_t most = count(schema, "maxItems", GrammarBuilder::kNoLimit);
    if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxItems is less than minItems");
    std::vector<Expr> first;
    std::int64_t i = 0;
    for (JsonNode p = prefix.first(); p; p = p.next(), ++i) {
      const Step step(*this, "prefixItems/" + std::to_string(i));
      first.push_back(value(p));
    }
    std::optional<Expr> rest;
    if (items.is_object() || (items.is_boolean() && items.boolean()) || (!items && !prefix)) {
      const Step step(*this, "items");
      rest = items.is_object() ? value(items) : parts_.value();
    } else if (items && !items.is_boolean()) {
      wrong("expected 'items' to be a schema");
    }
    // From the last one to the first: each may be the last, where there are enough.
    const auto prefixes = std::ssize(first);
    const std::int64_t fixed =
        most == GrammarBuilder::kNoLimit ? prefixes : std::min(prefixes, most);
    if (!rest && least > prefixes) wrong("minItems is more than there are prefixItems");
    Expr tail = b.nothing();
    if (rest && (most == GrammarBuilder::kNoLimit || most > prefixes)) {
      const Expr next = b.sequence({b.text(","), parts_.space(), *rest});
      const std::int64_t need = std::max<std::int64_t>(least - prefixes, 0);
      const std::int64_t room = most == GrammarBuilder::kNoLimit ? most : most - prefixes;
      if (prefixes == 0) {
        tail = b.sequence({*rest, b.repeat(next, std::max<std::int64_t>(need - 1, 0),
                                           room == GrammarBuilder::kNoLimit ? room : room - 1)});
        if (need == 0) tail = b.optional(tail);
      } else {
        tail = b.repeat(next, need, room);
      }
    }
    // Through rules, since a long list would nest as deep as it is.
    for (std::int64_t at = fixed; at-- > 0;) {
      std::vector<Expr> parts;
      if (at > 0) parts = {b.text(","), parts_.space()};
      parts.push_back(first[static_cast<std::size_t>(at)]);
      parts.push_back(tail);
      const std::int32_t rule = b.rule("items " + std::to_string(b.rules()));
      const Expr whole = b.sequence(std::move(parts));
      b.define(rule, at < least ? whole : b.optional(whole));
      tail = b.call(rule);
    }
    return b.sequence({b.text("["), parts_.space(), tail, parts_.space(), b.text("]")});
  }

  JsonNode root_;
  std::string_view source_;
  std::string prefix_;  // of its rules' names
  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::string place_ = "#";
  std::vector<Waiting> waiting_;
  std::size_t objects_ = 0;  // so far
  std::set<std::int32_t> asked_;
  mutable std::map<std::string, std::map<std::string_view, JsonNode>> members_;  // by place
};

}  // namespace

std::vector<std::int32_t> add_schema(GrammarBuilder& builder, JsonParts& parts,
                                     const SchemaSource& source,
                                     std::span<const SchemaPlace> wanted) {
  require(bool{source.root}, source.name, ": there is no schema");
  return SchemaReader(builder, parts, source).read(wanted);
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(JsonNode schema, std::string_view source) {
  GrammarBuilder builder(source);
  JsonParts parts(builder);
  const SchemaPlace whole = {schema, "#"};
  const auto rules = add_schema(builder, parts, {schema, source}, std::span(&whole, 1));
  return builder.finish(rules.front());
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(std::string_view text,
                                                         std::string_view source) {
  const JsonTree tree = parse_json_tree(text, source, kSchemaLimits);
  return from_json_schema(tree.root(), source);
}

std::shared_ptr<const Grammar> Grammar::any_json_object() {
  return from_json_schema(R"({"type": "object"})", "JSON");
}

}  // namespace leq
