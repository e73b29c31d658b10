// A JSON schema: what its keywords say about values, and the rules of a grammar for them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/json_parts.h"

namespace leq {

// Equal texts for equal values: 1 and 1.0, and objects whose members have another order.
std::string canonical(JsonNode value);

bool is_flag(JsonNode node, bool value);  // false if there is no node

// Whether a keyword restricts no values, and the type whose values alone it restricts ("": any).
bool is_note(std::string_view keyword);
std::string_view type_of_keyword(std::string_view keyword);
// The type that a schema without `type` means by its keywords; empty: any.
std::string_view implied_type(JsonNode schema);
// Whether a schema's `type` allows values of this type.
bool may_be(JsonNode type, std::string_view wanted);
// Whether the schema has no keywords other than these, `type` and notes.
bool has_only(JsonNode schema, std::initializer_list<std::string_view> keywords);

// Whether the schema is true, or has only keywords that do not restrict values.
bool allows_all(JsonNode schema);
// The first type that a schema names or means, in itself, its references or allOf; empty: any.
std::string_view named_type(JsonNode schema, JsonNode root);
// Whether the schema is {}, true, or {"type": "string"}, which every property name satisfies.
bool allows_any_name(JsonNode schema);
// Whether the keyword, with its given value, is satisfied by all values of the schema's type.
bool restricts_nothing(JsonNode schema, JsonNode keyword);
// Whether the value of `not` may refuse values of this type (empty: any).
bool refuses_some(JsonNode no, std::string_view type);
// The strings among the constants that `not` refuses; nullopt if it is not of constants only.
std::optional<std::vector<std::string_view>> refused_texts(JsonNode no);
// Adds the constants of the given type as JSON; if there are both `const` and `enum`, only the
// const.
void add_constants(JsonNode schema, JsonNode type, std::vector<std::string>& texts);

// Whether a schema is of constants only, at most 64.
bool are_few(JsonNode schema);
// The bounds of a number: the tighter one of each pair, even if no number is left. `wrong` throws
// the mistake.
NumberRange range_of(JsonNode schema, const std::function<void(const std::string&)>& wrong);

// Whether the value has the type, or one of the types if `type` is a list.
bool has_type(JsonNode value, JsonNode type);

bool requires_property(JsonNode schema, std::string_view name);

// Two of these alternatives, in order, for both of which a value may be valid, judging by types,
// constants and a required property with constants; nullopt if there are none. The caller must
// resolve references. Linear: of many alternatives, objects differ only if one property has a
// different constant in each of them.
std::optional<std::pair<std::size_t, std::size_t>> may_hold_together(
    std::span<const JsonNode> alternatives);

// The keys of a reference such as "#/$defs/a%20b" (RFC 6901, section 6), and the member or element
// that a key names, nothing if there is none.
std::vector<std::string> pointer_steps(std::string_view reference);
JsonNode step_into(JsonNode at, const std::string& key);

// Whether a schema allows a string; unknown if it names no types. References are resolved from
// `root`; nested alternatives are followed to a limited depth.
enum class TextUse : std::uint8_t { no, allowed, unknown };
TextUse text_use(JsonNode schema, JsonNode root);
// Whether the schema allows null, judging by its keywords.
bool allows_null(JsonNode schema, JsonNode root);

// Adds rules for the values that a JSON schema accepts to a grammar.
struct SchemaSource {
  JsonNode root;            // the base of references
  std::string_view name;    // used in errors
  std::string prefix = {};  // of rule names; unique among a grammar's schemas
  // If null, an unsupported keyword throws Error (strict). Otherwise the keyword is ignored and a
  // line is added here.
  SchemaNotes* notes = nullptr;
  bool any_order = false;  // objects have their properties in any order, not in the schema's
  // Objects have further properties unless the schema forbids these; otherwise they have them only
  // if there is additionalProperties.
  bool open = false;
};

// A schema within the root, and its path there: "#", "#/properties/name".
struct SchemaPlace {
  JsonNode schema;
  std::string path;
};

// The rules of these subschemas, in order. Throws Error like Grammar::from_json_schema; the builder
// must not be used after that.
std::vector<std::int32_t> add_schema(GrammarBuilder& builder, JsonParts& parts,
                                     const SchemaSource& source,
                                     std::span<const SchemaPlace> wanted);
// The rule of the whole schema.
std::int32_t add_schema(GrammarBuilder& builder, JsonParts& parts, const SchemaSource& source);

}  // namespace leq
