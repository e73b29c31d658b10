// Builds a grammar from expressions and compiles it into the places of an automaton.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace leq {

// The characters from `first` to `last`, as code points.
struct CharRange {
  char32_t first = 0, last = 0;
};
inline constexpr char32_t kLastCharacter = 0x10ffff;
// All characters that are in none of these ranges.
std::vector<CharRange> inverted(std::vector<CharRange> ranges);

class GrammarBuilder {
 public:
  using Expr = std::uint32_t;  // index of an expression
  static constexpr std::int64_t kNoLimit = -1;
  // The largest repetition count, for the readers of grammars and schemas.
  static constexpr std::int64_t kMostTimes = 10'000;

  // `source` names the grammar in errors.
  explicit GrammarBuilder(std::string_view source);

  Expr text(std::string_view bytes);
  Expr chars(std::span<const CharRange> ranges);
  Expr chars(std::initializer_list<CharRange> ranges) {
    return chars(std::span(ranges.begin(), ranges.size()));
  }
  Expr sequence(std::vector<Expr> parts);
  Expr choice(std::vector<Expr> parts);
  Expr repeat(Expr part, std::int64_t least, std::int64_t most);
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr call(std::int32_t rule);
  // The states of a deterministic machine over bytes; the first one is the start. It searches for
  // marks, where only one state is active at a time.
  struct ByteState {
    std::vector<Grammar::Edge> edges;         // `to` is the index of a state
    std::vector<Grammar::Place::Call> calls;  // `back` is the index of a state
    bool ends = false;
  };
  Expr machine(std::vector<ByteState> states);
  Expr nothing() { return sequence({}); }

  // The rule of this name, created if it is new; it must be defined exactly once before finish().
  std::int32_t rule(std::string_view name);
  void define(std::int32_t rule, Expr expression);
  bool is_defined(std::int32_t rule) const {
    return rules_[static_cast<std::size_t>(rule)].defined;
  }
  std::size_t rules() const { return rules_.size(); }

  // Throws Error on undefined rules, on left recursion, on more than Grammar::kMostPlaces places,
  // and on a grammar that matches no text.
  std::shared_ptr<const Grammar> finish(std::int32_t root);

 private:
  enum class Kind : std::uint8_t { text, chars, sequence, choice, repeat, call, machine };
  struct Node {
    Kind kind = Kind::text;
    std::uint32_t depth = 1;
    std::int64_t least = 0, most = 0;
    std::int32_t rule = 0;
    std::string bytes = {};
    std::vector<CharRange> ranges = {};
    std::vector<Expr> parts = {};
    std::vector<ByteState> states = {};
  };
  struct Rule {
    std::string name;
    Expr expression = 0;
    bool defined = false;
  };

  Expr add(Node node);
  std::int32_t place();
  Grammar::Place& at(std::int32_t place) { return places_[static_cast<std::size_t>(place)]; }
  // Adds the edges, calls and places of the expression between two places.
  void emit(Expr expression, std::int32_t from, std::int32_t to);
  void emit_chars(std::span<const CharRange> ranges, std::int32_t from, std::int32_t to);
  void emit_range(CharRange range, std::int32_t from, std::int32_t to);
  void emit_repeat(const Node& node, std::int32_t from, std::int32_t to);
  void emit_machine(const Node& node, std::int32_t from, std::int32_t to);
  void refuse_left_recursion();
  // `begins`: for each rule, the rules that it may begin with.
  void refuse_rings(const std::vector<std::vector<std::int32_t>>& begins);

  std::string source_;
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  std::map<std::string, std::int32_t, std::less<>> names_;
  std::vector<Grammar::Place> places_;
  std::vector<std::int32_t> starts_;
};

}  // namespace leq
