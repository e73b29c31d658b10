// Properties of a JSON schema that need no grammar.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace leq {

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

}  // namespace leq
