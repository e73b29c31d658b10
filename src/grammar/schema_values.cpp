// Builds objects and arrays of JSON schemas.

#include <algorithm>
#include <utility>

#include "grammar/json_schema.h"

namespace leq {
namespace {

bool is_flag(JsonNode node, bool value) { return node.is_boolean() && node.boolean() == value; }

// Whether the schema is {}, true, or {"type": "string"}, which every property name satisfies.
bool allows_any_name(JsonNode schema) {
  if (is_flag(schema, true)) return true;
  if (!schema.is_object() || schema.size() > 1) return false;
  const JsonNode type = schema.find("type");
  return schema.size() == 0 || (type.is_string() && type.text() == "string");
}

}  // namespace

using Expr = SchemaReader::Expr;

// Whether the keyword, with its given value, is satisfied by all values.
bool SchemaReader::restricts_nothing(JsonNode schema, JsonNode keyword) const {
  const std::string_view name = keyword.key();
  const auto whole = keyword.is_number() ? keyword.whole() : std::nullopt;
  const JsonNode type = schema.find("type");
  if (name == "uniqueItems") {
    const JsonNode most = schema.find("maxItems");
    return is_flag(keyword, false) || (most.is_number() && most.number() <= 1);
  }
  if (name == "multipleOf") return whole == 1 && type.is_string() && type.text() == "integer";
  if (name == "not") return is_flag(keyword, false);
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

void SchemaReader::take_properties(JsonNode schema, std::vector<Property>& all, bool& closed) {
  const JsonNode type = schema.find("type");
  if (type && !(type.is_string() && type.text() == "object")) {
    unsupported("'allOf' is supported for objects alone");
  }
  const JsonNode more = schema.find("additionalProperties");
  closed = closed || (more && !is_flag(more, true));
  collect(schema, all);
}

// Properties in the schema's order, followed by those that are only listed in `required`.
void SchemaReader::collect(JsonNode schema, std::vector<Property>& all) const {
  const JsonNode properties = schema.find("properties"), required = schema.find("required");
  if (properties && !properties.is_object()) wrong("expected 'properties' to be an object");
  // In draft 3 `required` is a boolean of each property, which is ignored.
  if (required && !required.is_array() && !required.is_boolean()) {
    wrong("expected 'required' to be a list");
  }
  std::set<std::string_view> names;
  for (const Property& p : all) names.insert(p.name);
  for (const JsonNode p : properties) {
    if (!names.insert(p.key()).second) {
      unsupported("the property '" + printable(p.key()) + "' occurs twice");
    }
    all.push_back({p.key(), p, false});
  }
  std::set<std::string_view> wanted;
  for (const JsonNode r : required) {
    if (!r.is_string()) wrong("expected the names in 'required' to be texts");
    wanted.insert(r.text());
    if (names.insert(r.text()).second) all.push_back({r.text(), JsonNode(), false});
  }
  for (Property& p : all) p.required = p.required || wanted.contains(p.name);
}

Expr SchemaReader::object(JsonNode schema) {
  const JsonNode more = schema.find("additionalProperties");
  std::vector<Property> all;
  collect(schema, all);
  if (all.empty()) {
    if (const auto found = dictionary(schema)) return *found;
  }
  const bool refuses_more = is_flag(more, false);
  std::int64_t required = 0;
  for (const Property& p : all) {
    required += p.required ? 1 : 0;
    if (refuses_more && !p.schema) {
      wrong("'", printable(p.name), "' is required, and additionalProperties allows it not");
    }
  }
  const JsonNode names = schema.find("propertyNames"), patterns = schema.find("patternProperties");
  if (names && !allows_any_name(names) && !refuses_more)
    note_ignored("the keyword 'propertyNames'");
  if (patterns && patterns.size() > 0) note_ignored("the keyword 'patternProperties'");
  if (count(schema, "minProperties", 0) > required) note_ignored("the keyword 'minProperties'");
  const std::int64_t most = count(schema, "maxProperties", GrammarBuilder::kNoLimit);
  const bool may_be_more = !refuses_more && (more || all.empty());
  if (most != GrammarBuilder::kNoLimit && (may_be_more || most < std::ssize(all))) {
    note_ignored("the keyword 'maxProperties'");
  }
  // If a schema names properties, others are allowed only if additionalProperties is given.
  const bool open = more ? !refuses_more : all.empty();
  return object_of(all, more, open ? Others::allowed : Others::refused);
}

// An object without named properties whose property names or number of properties are restricted;
// nullopt if neither is restricted or the restriction cannot be enforced.
std::optional<Expr> SchemaReader::dictionary(JsonNode schema) {
  GrammarBuilder& b = builder_;
  const JsonNode more = schema.find("additionalProperties"),
                 names = target_of(schema.find("propertyNames")),
                 patterns = schema.find("patternProperties");
  const std::int64_t least = count(schema, "minProperties", 0);
  const std::int64_t most = count(schema, "maxProperties", GrammarBuilder::kNoLimit);
  const bool has_patterns = patterns.is_object() && patterns.size() > 0;
  const bool has_names = names && !allows_any_name(names) && !has_patterns;
  const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
  if (!has_names && !counted && !has_patterns) return std::nullopt;
  // Patterns are not supported if a name could match several of these schemas.
  if (has_patterns && (patterns.size() > 1 || !is_flag(more, false))) return std::nullopt;
  if (!has_patterns && is_flag(more, false)) return std::nullopt;
  if (most != GrammarBuilder::kNoLimit && most < least) {
    wrong("maxProperties is less than minProperties");
  }
  Expr key = parts_.string();
  if (has_names) {
    const Step step(*this, "propertyNames");
    key = names.find("enum") || names.find("const") ? constants(names) : typed(names, "string");
  }
  if (has_patterns) {
    const auto inside = pattern(patterns.first().key());
    if (inside) key = b.sequence({b.text("\""), *inside, b.text("\"")});
  }
  const JsonNode held = has_patterns ? patterns.first() : more;
  const Step step(*this, has_patterns ? "patternProperties" : "additionalProperties");
  const Expr member = b.sequence(
      {key, b.text(":"), parts_.space(), held.is_object() ? value(held) : parts_.value()});
  const Expr next = b.sequence({b.text(","), parts_.space(), member});
  const std::int64_t most_left =
      most == GrammarBuilder::kNoLimit ? most : std::max<std::int64_t>(most - 1, 0);
  const Expr some = b.sequence(
      {member, b.repeat(next, std::max<std::int64_t>(least - 1, 0), most_left), parts_.space()});
  const Expr inner = most == 0 ? b.nothing() : least > 0 ? some : b.optional(some);
  return b.sequence({b.text("{"), parts_.space(), inner, b.text("}")});
}

// `more`: the schema of further properties, if they are allowed.
Expr SchemaReader::object_of(const std::vector<Property>& all, JsonNode more, Others others) {
  GrammarBuilder& b = builder_;
  const Step step(*this, "properties");
  const std::string prefix = prefix_ + "members " + std::to_string(objects_++) + " ";
  // One rule for each number of properties handled so far and for whether one of them was written.
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

Expr SchemaReader::member_of(const Property& property) {
  GrammarBuilder& b = builder_;
  const Step step(*this, property.name);
  return b.sequence({b.text("\""), parts_.written(property.name), b.text("\":"), parts_.space(),
                     property.schema ? value(property.schema) : parts_.value()});
}

// Further properties up to the closing bracket, including the white space before it.
Expr SchemaReader::other_members(const std::vector<Property>& all, JsonNode more, Others others,
                                 bool any) {
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

// In drafts before 2020, a list of `items` has the meaning of prefixItems, and additionalItems that
// of items.
Expr SchemaReader::array(JsonNode schema) {
  JsonNode items = schema.find("items"), prefix = schema.find("prefixItems");
  if (items.is_array() && !prefix) {
    prefix = items;
    items = schema.find("additionalItems");
  }
  if (prefix && !prefix.is_array()) wrong("expected 'prefixItems' to be a list");
  const std::int64_t least = count(schema, "minItems", 0);
  const std::int64_t most = count(schema, "maxItems", GrammarBuilder::kNoLimit);
  if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxItems is less than minItems");
  std::vector<Expr> first;
  std::int64_t i = 0;
  for (const JsonNode p : prefix) {
    const Step step(*this, "prefixItems/" + std::to_string(i++));
    first.push_back(value(p));
  }
  std::optional<Expr> rest;
  if (items.is_object() || is_flag(items, true) || (!items && !prefix)) {
    const Step step(*this, "items");
    rest = items.is_object() ? value(items) : parts_.value();
  } else if (items && !items.is_boolean()) {
    wrong("expected 'items' to be a schema");
  }
  // If minItems exceeds the prefix, the further elements may be anything, as the draft says.
  if (!items && prefix && least > std::ssize(first)) rest = parts_.value();
  if (!rest && least > std::ssize(first)) wrong("minItems is more than there are prefixItems");
  return items_from(first, rest, least, most);
}

Expr SchemaReader::items_from(const std::vector<Expr>& first, std::optional<Expr> rest,
                              std::int64_t least, std::int64_t most) {
  GrammarBuilder& b = builder_;
  // Built from the last element to the first; an element may be the last one once minItems is met.
  const auto prefixes = std::ssize(first);
  const bool unlimited = most == GrammarBuilder::kNoLimit;
  const std::int64_t fixed = unlimited ? prefixes : std::min(prefixes, most);
  Expr tail = b.nothing();
  if (rest && (unlimited || most > prefixes)) {
    const Expr next = b.sequence({b.text(","), parts_.space(), *rest});
    const std::int64_t need = std::max<std::int64_t>(least - prefixes, 0);
    const std::int64_t most_left = unlimited ? most : most - prefixes;
    if (prefixes == 0) {
      tail = b.sequence({*rest, b.repeat(next, std::max<std::int64_t>(need - 1, 0),
                                         unlimited ? most_left : most_left - 1)});
      if (need == 0) tail = b.optional(tail);
    } else {
      tail = b.repeat(next, need, most_left);
    }
  }
  // Each element is a rule of its own, because a long list would nest too deeply as an expression.
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

// Builds strings, numbers and constants of JSON schemas.

using Expr = SchemaReader::Expr;

std::int64_t SchemaReader::count(JsonNode schema, std::string_view keyword,
                                 std::int64_t fallback) const {
  const JsonNode found = schema.find(keyword);
  if (!found) return fallback;
  const auto value = found.whole();
  if (!value || *value < 0) wrong("expected '", keyword, "' to be a whole number, 0 or more");
  if (*value > GrammarBuilder::kMostTimes) {
    // No reply reaches such a large upper bound, so it is ignored.
    if (keyword.starts_with("max")) return GrammarBuilder::kNoLimit;
    unsupported("'" + std::string(keyword) + "' is " + std::to_string(*value) + ", at most " +
                std::to_string(GrammarBuilder::kMostTimes) + " is supported");
  }
  return *value;
}

Expr SchemaReader::constants(JsonNode schema) {
  const JsonNode list = schema.find("enum");
  if (list && !list.is_array()) wrong("expected 'enum' to be a list");
  check_keywords(schema, {"enum", "const", "type"});
  std::vector<std::string> texts;
  add_constants(schema, schema.find("type"), texts);
  if (texts.empty()) wrong("no value of 'enum' or 'const' is of the 'type'");
  return parts_.one_of(texts);
}

// Adds the constants of the given type; if there are both `const` and `enum`, only the const.
void SchemaReader::add_constants(JsonNode schema, JsonNode type,
                                 std::vector<std::string>& texts) const {
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

// Returns nullopt if the pattern is not supported, and notes this.
std::optional<Expr> SchemaReader::pattern(std::string_view expression) {
  const std::string place = std::string(source_) + ": " + place_;
  if (notes_ == nullptr) return pattern_expression(builder_, parts_, expression, place);
  try {
    return pattern_expression(builder_, parts_, expression, place);
  } catch (const Error&) {
    note_ignored("the keyword 'pattern'");
    return std::nullopt;
  }
}

// Only one of pattern, the format's pattern and the lengths is enforced, in this order of priority;
// the others are noted, except a format, because by the draft it does not restrict values.
Expr SchemaReader::string(JsonNode schema) {
  GrammarBuilder& b = builder_;
  const JsonNode wanted = schema.find("pattern"), format = schema.find("format");
  const std::int64_t least = count(schema, "minLength", 0);
  const std::int64_t most = count(schema, "maxLength", GrammarBuilder::kNoLimit);
  const bool counted = least > 0 || most != GrammarBuilder::kNoLimit;
  if (wanted && !wanted.is_string()) wrong("expected 'pattern' to be a text");
  if (most != GrammarBuilder::kNoLimit && most < least) wrong("maxLength is less than minLength");
  std::optional<Expr> inside;
  if (wanted) inside = pattern(wanted.text());
  const std::string_view known =
      format.is_string() ? format_pattern(format.text()) : std::string_view();
  if (!inside && !known.empty() && (wanted || !counted)) inside = pattern(known);
  if (inside) {
    if (counted) note_ignored("a length beside 'pattern' or 'format'");
    return b.sequence({b.text("\""), *inside, b.text("\"")});
  }
  if (!counted) return parts_.string();
  return b.sequence({b.text("\""), b.repeat(parts_.character(), least, most), b.text("\"")});
}

// The tighter one of each pair of bounds. In draft 4, boolean flags make a bound exclusive.
NumberRange SchemaReader::range_of(JsonNode schema) const {
  NumberRange range;
  const auto take = [&](std::string_view keyword, std::optional<Decimal>& bound, bool& out,
                        bool exclusive, int inward) {
    const JsonNode node = schema.find(keyword);
    if (!node || (exclusive && node.is_boolean())) return;
    if (!node.is_number()) wrong("expected '", keyword, "' to be a number");
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
  if (is_empty(range)) {
    wrong("no number is between ", text_of(*range.least), " and ", text_of(*range.most));
  }
  return range;
}

Expr SchemaReader::integer(JsonNode schema) {
  const NumberRange range = whole_range(range_of(schema));
  if (is_empty(range)) {
    wrong("no whole number is between ", text_of(*range.least), " and ", text_of(*range.most));
  }
  return integer_in(builder_, range);
}

Expr SchemaReader::number(JsonNode schema) {
  const NumberRange range = range_of(schema);
  return !range.least && !range.most ? parts_.number() : number_in(builder_, range);
}

}  // namespace leq
