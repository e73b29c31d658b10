// A grammar: the set of texts that a reply may have. Compiled once from GBNF or a JSON schema into
// a pushdown automaton over bytes (docs/grammars.md); immutable, and shared by any number of
// replies and threads.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

// The parts of a schema that its grammar does not enforce, one line each: "SOURCE: PATH: the
// keyword 'not' is not enforced".
using SchemaNotes = std::vector<std::string>;

// Asked repeatedly while a grammar is compiled: true ends the work by an Error (interrupted). May
// be empty.
using GrammarStop = std::function<bool()>;

// How much a grammar's automaton may store, in all states together.
struct GrammarLimits {
  std::size_t stacks = 4'000'000;
  std::size_t kept = 20'000'000;  // tops and transitions
};

class Grammar {
 public:
  // An edge: any byte from `first` to `last` leads to place `to`.
  struct Edge {
    std::uint8_t first = 0, last = 0;
    std::int32_t to = 0;
  };
  struct Call {
    std::int32_t rule = 0;
    std::int32_t back = 0;  // the place to return to after the call
  };
  // A node of a rule's automaton: edges and calls lead on from it, and the rule may end here.
  struct Place {
    std::span<const Edge> edges;
    std::span<const Call> calls;
    std::span<const std::int32_t> skips;  // places reached without reading a byte
    bool ends = false;                    // then nothing leads on
    std::int32_t set = -1;  // index in sets(): the set begins here; its static edges do not count
  };
  // Members in any order, each at most once, and any number of others.
  struct Set {
    struct Member {
      std::int32_t rule = 0;
      bool required = false;
    };
    std::vector<Member> members;
    std::int32_t other = -1, comma = -1;     // rules of other members, and between two; -1: none
    std::int32_t end = 0;                    // the place after the set
    std::size_t least = 0, most = SIZE_MAX;  // members that there are, if there are no others
  };

  // Reads llama.cpp's GBNF, whose start rule is "root". Throws Error naming `source`, the line and
  // what is expected there; also on undefined rules, on rules that call themselves before reading a
  // byte (left recursion), and on more than kMaxPlaces places.
  static std::shared_ptr<const Grammar> from_gbnf(std::string_view text, std::string_view source,
                                                  GrammarStop stopped = {});

  // The JSON texts of the values that a schema accepts, with properties in the schema's order and
  // white space as JSON writers emit it. Throws Error naming `source`, the path in the schema and
  // the mistake. If `notes` is null (strict), an unsupported keyword also throws Error; otherwise
  // it is ignored and `notes` gets a line.
  static std::shared_ptr<const Grammar> from_json_schema(JsonNode schema, std::string_view source,
                                                         SchemaNotes* notes = nullptr,
                                                         GrammarStop stopped = {});
  static std::shared_ptr<const Grammar> from_json_schema(std::string_view text,
                                                         std::string_view source,
                                                         SchemaNotes* notes = nullptr);
  // Any JSON object, for "response_format": {"type": "json_object"}.
  static std::shared_ptr<const Grammar> any_json_object();

  // The grammar restricted to texts of these bytes, which are all bytes of a vocabulary's tokens.
  // Null if no text is left.
  static std::shared_ptr<const Grammar> written_with(std::shared_ptr<const Grammar> grammar,
                                                     const std::bitset<256>& bytes);

  std::size_t places() const { return places_.size() - 1; }
  Place place(std::int32_t index) const;
  // Whether a rule ends at this place. Nothing leads on from such a place.
  bool ends(std::int32_t place) const { return places_[static_cast<std::size_t>(place)].ends; }
  const std::vector<Set>& sets() const { return sets_; }
  std::int32_t start_of(std::int32_t rule) const { return starts_[static_cast<std::size_t>(rule)]; }
  std::int32_t root() const { return root_; }  // index of the start rule

  std::size_t bytes() const;  // of memory

  static constexpr std::size_t kMaxPlaces = 1'000'000;

 private:
  friend class GrammarBuilder;
  Grammar() = default;

  // The edges, calls and skips of all places are one list each; a place has those from its first
  // one to that of the next place.
  struct Firsts {
    std::uint32_t edges = 0, calls = 0, skips = 0;
    std::int32_t set = -1;
    bool ends = false;
  };
  // The places that can reach an end if this place can are a list for each place, likewise.
  struct Before {
    std::vector<std::uint32_t> firsts;
    std::vector<std::int32_t> places;
  };
  Before before() const;
  // Removes all edges, calls and skips from which no end can be reached, so that every allowed
  // prefix can be continued to a complete text. Returns false if then no text is left.
  bool drop_dead_ends();
  void shorten_skips();
  template <class Item, class Keeps>
  void keep(std::vector<Item>& items, std::uint32_t Firsts::*first, const Keeps& keeps);

  std::vector<Firsts> places_;  // and one more, where the lists end
  std::vector<Edge> edges_;
  std::vector<Call> calls_;
  std::vector<std::int32_t> skips_;
  std::vector<Set> sets_;
  std::vector<std::int32_t> starts_;  // first place of each rule
  std::int32_t root_ = 0;
};

// The characters from `first` to `last`, as code points.
struct CharRange {
  char32_t first = 0, last = 0;
};
inline constexpr char32_t kLastCharacter = 0x10ffff;
// All characters that are in none of these ranges.
std::vector<CharRange> inverted(std::vector<CharRange> ranges);

// Builds a grammar from expressions and compiles it into the places of an automaton.
class GrammarBuilder {
 public:
  using Expr = std::uint32_t;  // index of an expression
  static constexpr std::int64_t kNoLimit = -1;
  // The largest repetition count, for the readers of grammars and schemas.
  static constexpr std::int64_t kMaxTimes = 10'000;

  // `source` names the grammar in errors.
  explicit GrammarBuilder(std::string_view source, GrammarStop stopped = {});

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
  // A text, and the rule that follows it (kNoRule: none).
  static constexpr std::int32_t kNoRule = -1;
  struct Word {
    std::string text;
    std::int32_t rule = kNoRule;
    auto operator<=>(const Word&) const = default;
  };
  // One of these texts, as a prefix tree, so that only one automaton state is active within them
  // regardless of their number.
  Expr words(std::vector<Word> words);
  // The states of a deterministic machine over bytes; the first one is the start. It searches for
  // marks, where only one state is active at a time.
  struct ByteState {
    std::vector<Grammar::Edge> edges;  // `to` is the index of a state
    std::vector<Grammar::Call> calls;  // `back` is the index of a state
    bool ends = false;
  };
  Expr machine(std::vector<ByteState> states);
  // `members`: its `end` is ignored. No member is an empty text.
  Expr set(Grammar::Set members);
  Expr nothing() { return sequence({}); }
  // No text at all. If this leaves the grammar without texts, the error gives the first reason.
  Expr never(std::string why) {
    if (why_never_.empty()) why_never_ = std::move(why);
    return choice({});
  }

  // The rule of this name, created if it is new; it must be defined exactly once before finish().
  std::int32_t rule(std::string_view name);
  void define(std::int32_t rule, Expr expression);
  bool is_defined(std::int32_t rule) const {
    return rules_[static_cast<std::size_t>(rule)].defined;
  }
  std::size_t rules() const { return rules_.size(); }

  // Throws Error (interrupted) if the work is to end; count_step looks once in kStepsOfALook.
  void look() const;
  void count_step();
  static constexpr std::size_t kStepsOfALook = 4096;

  // Throws Error on undefined rules, on left recursion, on more than Grammar::kMaxPlaces places,
  // and on a grammar that matches no text.
  std::shared_ptr<const Grammar> finish(std::int32_t root);

 private:
  enum class Kind : std::uint8_t {
    text,
    chars,
    sequence,
    choice,
    repeat,
    call,
    words,
    machine,
    set
  };
  struct Node {
    Kind kind = Kind::text;
    std::uint32_t depth = 1;
    std::int64_t least = 0, most = 0;
    std::int32_t rule = 0;
    std::string bytes = {};
    std::vector<CharRange> ranges = {};
    std::vector<Expr> parts = {};
    std::vector<Word> words = {};
    std::vector<ByteState> states = {};
    Grammar::Set members = {};
  };
  struct Rule {
    std::string name;
    Expr expression = 0;
    bool defined = false;
  };

  // What leads on from a place.
  template <class Item>
  struct From {
    std::int32_t place;
    Item item;
  };

  Expr add(Node node);
  std::int32_t place();
  void edge(std::int32_t from, Grammar::Edge edge) { edges_.push_back({from, edge}); }
  void call_from(std::int32_t from, Grammar::Call call) { calls_.push_back({from, call}); }
  void skip(std::int32_t from, std::int32_t to) { skips_.push_back({from, to}); }
  // Adds the edges, calls and places of the expression between two places.
  void emit(Expr expression, std::int32_t from, std::int32_t to);
  void emit_chars(std::span<const CharRange> ranges, std::int32_t from, std::int32_t to);
  void emit_range(CharRange range, std::int32_t from, std::int32_t to);
  void emit_repeat(const Node& node, std::int32_t from, std::int32_t to);
  void emit_words(const Node& node, std::int32_t from, std::int32_t to);
  void emit_machine(const Node& node, std::int32_t from, std::int32_t to);
  void emit_set(const Node& node, std::int32_t from, std::int32_t to);
  // The lists of all places, in the order of the places.
  template <class Item>
  std::vector<Item> in_order(std::vector<From<Item>>& items, std::uint32_t Grammar::Firsts::*first,
                             Grammar& grammar);
  void refuse_left_recursion(const Grammar& grammar);
  // `begins`: for each rule, the rules that it may begin with.
  void refuse_rings(const std::vector<std::vector<std::int32_t>>& begins);

  std::string source_, why_never_ = {};
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
  std::map<std::string, std::int32_t, std::less<>> names_;
  GrammarStop stopped_;
  std::size_t steps_ = 0;
  std::vector<Grammar::Firsts> places_;  // without the lists
  std::vector<From<Grammar::Edge>> edges_;
  std::vector<From<Grammar::Call>> calls_;
  std::vector<From<std::int32_t>> skips_;
  std::vector<Grammar::Set> sets_;
  std::vector<std::int32_t> starts_;
};

}  // namespace leq
