// Adds the values that a JSON schema accepts to a grammar, as rules.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "generate/grammar/builder.h"
#include "generate/grammar/grammar.h"
#include "generate/grammar/json_parts.h"

namespace leq {

struct SchemaSource {
  JsonNode root;            // what references begin at
  std::string_view name;    // in errors
  std::string prefix = {};  // of its rules' names, its own among several schemas of a grammar
  // Null: a keyword that cannot be held is an Error (strict). Else the schema is held without it,
  // and a line says so.
  SchemaNotes* notes = nullptr;
};

// A schema within the root and its path there: "#", "#/properties/name".
struct SchemaPlace {
  JsonNode schema;
  std::string path;
};

// The rules of these places, in turn. Throws Error as Grammar::from_json_schema does; the builder
// is of no use then.
std::vector<std::int32_t> add_schema(GrammarBuilder& builder, JsonParts& parts,
                                     const SchemaSource& source,
                                     std::span<const SchemaPlace> wanted);

}  // namespace leq
