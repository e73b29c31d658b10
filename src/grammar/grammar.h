// A grammar: the set of texts that a reply may have. Compiled once from GBNF or a JSON schema into
// a pushdown automaton over bytes (docs/grammars.md); immutable, and shared by any number of
// replies and threads.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

// The parts of a schema that its grammar does not enforce, one line each: "SOURCE: PATH: the
// keyword 'not' is not enforced".
using SchemaNotes = std::vector<std::string>;

class Grammar {
 public:
  // An edge: any byte from `first` to `last` leads to place `to`.
  struct Edge {
    std::uint8_t first = 0, last = 0;
    std::int32_t to = 0;
  };
  // A node of a rule's automaton: edges and calls lead on from it, and the rule may end here.
  struct Place {
    struct Call {
      std::int32_t rule = 0;
      std::int32_t back = 0;  // the place to return to after the call
    };
    std::vector<Edge> edges;
    std::vector<Call> calls;
    std::vector<std::int32_t> skips;  // places reached without reading a byte
    bool ends = false;
  };

  // Reads llama.cpp's GBNF, whose start rule is "root". Throws Error naming `source`, the line and
  // what is expected there; also on undefined rules, on rules that call themselves before reading a
  // byte (left recursion), and on more than kMostPlaces places.
  static std::shared_ptr<const Grammar> from_gbnf(std::string_view text, std::string_view source);

  // The JSON texts of the values that a schema accepts, with properties in the schema's order and
  // white space as JSON writers emit it. Throws Error naming `source`, the path in the schema and
  // the mistake. If `notes` is null (strict), an unsupported keyword also throws Error; otherwise
  // it is ignored and `notes` gets a line.
  static std::shared_ptr<const Grammar> from_json_schema(JsonNode schema, std::string_view source,
                                                         SchemaNotes* notes = nullptr);
  static std::shared_ptr<const Grammar> from_json_schema(std::string_view text,
                                                         std::string_view source,
                                                         SchemaNotes* notes = nullptr);
  // Any JSON object, for "response_format": {"type": "json_object"}.
  static std::shared_ptr<const Grammar> any_json_object();

  // The grammar restricted to texts of these bytes, which are all bytes of a vocabulary's tokens.
  // Null if no text is left.
  static std::shared_ptr<const Grammar> written_with(std::shared_ptr<const Grammar> grammar,
                                                     const std::bitset<256>& bytes);

  const std::vector<Place>& places() const { return places_; }
  std::int32_t start_of(std::int32_t rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  std::int32_t root() const { return root_; }  // index of the start rule

  static constexpr std::size_t kMostPlaces = 1'000'000;

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<Place> places_;
  std::vector<std::int32_t> starts_;  // first place of each rule
  std::int32_t root_ = 0;
};

}  // namespace leq
