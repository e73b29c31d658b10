// Builds strings, numbers and constants of JSON schemas.
#include <algorithm>
#include <utility>

#include "generate/grammar/schema_facts.h"
#include "generate/grammar/schema_reader.h"

namespace leq {

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
