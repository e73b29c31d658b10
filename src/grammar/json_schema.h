// Properties of a JSON schema that need no grammar.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "grammar/builder.h"
#include "grammar/grammar.h"
#include "grammar/json_parts.h"

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

// Adds rules for the values that a JSON schema accepts to a grammar.
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

// Reads one JSON schema into rules of a grammar. Its functions are in json_schema.cpp (dispatch by
// keyword), schema_objects.cpp and schema_scalars.cpp.
class SchemaReader {
 public:
  using Expr = GrammarBuilder::Expr;

  SchemaReader(GrammarBuilder& builder, JsonParts& parts, const SchemaSource& source)
      : root_(source.root),
        source_(source.name),
        prefix_(source.prefix),
        notes_(source.notes),
        builder_(builder),
        parts_(parts) {}

  std::vector<std::int32_t> read(std::span<const SchemaPlace> wanted);

 private:
  struct Waiting {
    std::int32_t rule;
    JsonNode schema;
    std::string place;
  };
  struct Property {
    std::string_view name;
    JsonNode schema;  // nothing: any value
    bool required = false;
  };
  // Thrown for a valid schema that a grammar cannot express.
  struct Unsupported {
    std::string what;
  };
  enum class Others { refused, allowed };  // properties that are not named

  // Appends one component to the path within the schema for its own lifetime.
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

  // Throws Error: the schema is invalid.
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source_, ": ", place_, ": ", parts...);
  }
  // In loose mode, notes that `what` is not enforced; in strict mode, throws Error.
  void note_ignored(std::string_view what);
  void note(std::string_view text);
  // Throws Unsupported; in loose mode the caller then enforces only the type.
  [[noreturn]] void unsupported(const std::string& what) const;

  std::int32_t rule_of(JsonNode schema, const std::string& place);
  void check_keywords(JsonNode schema, std::initializer_list<std::string_view> known);
  Expr value(JsonNode schema);
  Expr exact_value(JsonNode schema);
  Expr loose_value(JsonNode schema);
  std::string_view implied_type(JsonNode schema) const;
  Expr one_of_types(JsonNode schema, JsonNode types);
  Expr typed(JsonNode schema, std::string_view type);
  Expr reference(JsonNode schema);
  std::pair<JsonNode, std::string> resolve(std::string_view name) const;
  JsonNode target_of(JsonNode schema) const;
  Expr alternatives(JsonNode schema, std::string_view keyword);
  void require_disjoint(JsonNode list, std::size_t place);
  Expr all_of(JsonNode schema);

  // Defined in schema_scalars.cpp:
  std::int64_t count(JsonNode schema, std::string_view keyword, std::int64_t fallback) const;
  Expr constants(JsonNode schema);
  void add_constants(JsonNode schema, JsonNode type, std::vector<std::string>& texts) const;
  Expr string(JsonNode schema);
  std::optional<Expr> pattern(std::string_view expression);
  NumberRange range_of(JsonNode schema) const;
  Expr integer(JsonNode schema);
  Expr number(JsonNode schema);

  // Defined in schema_objects.cpp:
  bool restricts_nothing(JsonNode schema, JsonNode keyword) const;
  void take_properties(JsonNode schema, std::vector<Property>& all, bool& closed);
  void collect(JsonNode schema, std::vector<Property>& all) const;
  Expr object(JsonNode schema);
  Expr object_of(const std::vector<Property>& all, JsonNode more, Others others);
  Expr member_of(const Property& property);
  Expr other_members(const std::vector<Property>& all, JsonNode more, Others others, bool any);
  std::optional<Expr> dictionary(JsonNode schema);
  Expr array(JsonNode schema);
  Expr items_from(const std::vector<Expr>& first, std::optional<Expr> rest, std::int64_t least,
                  std::int64_t most);

  JsonNode root_;
  std::string_view source_;
  std::string prefix_;  // prefix of its rules' names
  SchemaNotes* notes_;
  GrammarBuilder& builder_;
  JsonParts& parts_;
  std::string place_ = "#";
  std::vector<Waiting> waiting_;
  std::size_t objects_ = 0;  // number of objects so far
  std::set<std::int32_t> asked_;
};

}  // namespace leq
