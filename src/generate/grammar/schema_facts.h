// Properties of a JSON schema that need no grammar.
#pragma once

#include <cstdint>

#include "base/json_tree.h"

namespace leq {

// Whether the value is of a type, or of one of several.
bool has_type(JsonNode value, JsonNode type);

// Whether no value can be valid for both, as far as types, constants and a required property with
// constants tell; references are followed by the caller.
bool disjoint(JsonNode a, JsonNode b);

// Whether a schema allows a text; unknown where it says nothing of types. References are followed
// from `root`, alternatives within alternatives to a depth.
enum class TextUse : std::uint8_t { no, allowed, unknown };
TextUse text_use(JsonNode schema, JsonNode root);
// Whether it allows null, as far as that can be seen.
bool allows_null(JsonNode schema, JsonNode root);

}  // namespace leq
