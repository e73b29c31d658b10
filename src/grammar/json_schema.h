// A JSON schema: what its keywords say about values, and the rules of a grammar for them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/json_parts.h"

namespace leq {

// Whether a keyword restricts no values, and the type whose values alone it restricts ("": any).
bool is_note(std::string_view keyword);
std::string_view type_of_keyword(std::string_view keyword);
// The type that a schema without `type` means by its keywords; empty: any.
std::string_view implied_type(JsonNode schema);
// Whether a schema's `type` allows values of this type.
bool may_be(JsonNode type, std::string_view wanted);
// Whether the schema has no keywords other than these, `type` and notes.
bool has_only(JsonNode schema, std::initializer_list<std::string_view> keywords);

// Whether the value has the type, or one of the types if `type` is a list.
bool has_type(JsonNode value, JsonNode type);

// Whether no value can be valid for both schemas, judging by types, constants and a required
// property with constants. The caller must resolve references.
bool disjoint(JsonNode a, JsonNode b);

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
