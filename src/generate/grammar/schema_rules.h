// Adds rules for the values that a JSON schema accepts to a grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "generate/grammar/builder.h"
#include "generate/grammar/grammar.h"
#include "generate/grammar/json_parts.h"

namespace leq {

struct SchemaSource {
  JsonNode root;            // the base of references
  std::string_view name;    // used in errors
  std::string prefix = {};  // of rule names; unique among a grammar's schemas
  // If null, an unsupported keyword throws Error (strict). Otherwise the keyword is ignored and a
  // line is added here.
  SchemaNotes* notes = nullptr;
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

}  // namespace leq
