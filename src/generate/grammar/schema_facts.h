// What can be seen of a JSON schema without its grammar.
#pragma once

#include "base/json_tree.h"

namespace leq {

// Whether the value is of a type, or of one of several.
bool has_type(JsonNode value, JsonNode type);

// Whether no value can be valid for both, as far as types, constants and a required property with
// constants tell; references are followed by the caller.
bool disjoint(JsonNode a, JsonNode b);

}  // namespace leq
