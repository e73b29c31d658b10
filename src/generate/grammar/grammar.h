// A grammar: the set of texts that a reply may be. Compiled once from GBNF or from a JSON schema
// into a pushdown automaton over bytes (docs/grammars.md); immutable, and shared by any number of
// replies and threads.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"

namespace leq {

// What a schema says and its grammar does not hold: a line for each, "SOURCE: PATH: the keyword
// 'not' is not enforced".
using SchemaNotes = std::vector<std::string>;

class Grammar {
 public:
  // Bytes first..last lead to `to`.
  struct Edge {
    std::uint8_t first = 0, last = 0;
    std::int32_t to = 0;
  };
  // A place in a rule: bytes and calls lead on from it, and the rule may end there.
  struct Place {
    struct Call {
      std::int32_t rule = 0;
      std::int32_t back = 0;  // the place after the call
    };
    std::vector<Edge> edges;
    std::vector<Call> calls;
    std::vector<std::int32_t> skips;  // places that are reached with nothing
    bool ends = false;
  };

  // llama.cpp's GBNF, beginning at its rule "root". Throws Error naming `source`, the line, and
  // what is expected there; on rules that are not defined, that call themselves before a byte
  // (left recursion), and on more places than kMostPlaces.
  static std::shared_ptr<const Grammar> from_gbnf(std::string_view text, std::string_view source);

  // The texts of JSON values that a schema accepts: properties in the schema's order, white space
  // as JSON writers put it. Throws Error naming `source`, the path in the schema and what is wrong
  // there. A keyword that cannot be held is such an error too where `notes` is null (strict);
  // otherwise it is left out, and `notes` gets a line.
  static std::shared_ptr<const Grammar> from_json_schema(JsonNode schema, std::string_view source,
                                                         SchemaNotes* notes = nullptr);
  static std::shared_ptr<const Grammar> from_json_schema(std::string_view text,
                                                         std::string_view source,
                                                         SchemaNotes* notes = nullptr);
  // Any JSON object: what "response_format": {"type": "json_object"} wants.
  static std::shared_ptr<const Grammar> any_json_object();

  // Of its texts those that hold no other bytes than these, of which a vocabulary's tokens consist;
  // null where there are none.
  static std::shared_ptr<const Grammar> written_with(std::shared_ptr<const Grammar> grammar,
                                                     const std::bitset<256>& bytes);

  const std::vector<Place>& places() const { return places_; }
  std::int32_t start_of(std::int32_t rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  std::int32_t root() const { return root_; }  // a rule

  static constexpr std::size_t kMostPlaces = 1'000'000;

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  std::vector<Place> places_;
  std::vector<std::int32_t> starts_;  // by rule
  std::int32_t root_ = 0;
};

}  // namespace leq
