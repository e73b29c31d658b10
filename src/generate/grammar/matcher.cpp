#include "generate/grammar/matcher.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "generate/grammar/automaton.h"
#include "generate/grammar/token_trie.h"

namespace leq {
namespace {

using State = GrammarAutomaton::State;
using Mask = std::vector<std::uint64_t>;

constexpr std::size_t kKeptMaskBytes = std::size_t{64} << 20;  // of each kind

constexpr const char* kUnwritable =
    "grammar: this model's tokens can write no text that it allows; try another grammar or schema, "
    "or another model";

// Few vocabularies lack a byte; where one does, a way that needs it is none.
std::shared_ptr<const Grammar> writable(std::shared_ptr<const Grammar> grammar,
                                        const TokenTrie& tokens) {
  std::shared_ptr<const Grammar> left =
      Grammar::written_with(std::move(grammar), tokens.used_bytes());
  require(left != nullptr, kUnwritable);
  return left;
}

}  // namespace

// A place's own part of the mask is the same wherever its rule was called from: it is made once.
// Only for tokens that go past the rule's end is it looked at what comes below.
struct GrammarMatcher::Parts {
  struct LocalMask {
    Mask tokens;
    std::vector<std::uint32_t> leaving;  // nodes of the trie where the rule may end
  };

  std::shared_ptr<const TokenTrie> trie;
  GrammarAutomaton automaton;
  std::unordered_map<std::int32_t, LocalMask> local;  // by place
  std::unordered_map<State, Mask> whole;              // by state
  std::vector<State> path;                            // by depth, of the walk in work

  Parts(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens)
      : trie(std::move(tokens)),
        automaton(writable(std::move(grammar), *trie)),
        path(std::size_t{trie->longest()} + 1) {}

  std::size_t words() const { return (trie->vocabulary() + 63) / 64; }
  std::size_t most_masks() const {
    return std::max<std::size_t>(16, kKeptMaskBytes / (8 * words() + 64));
  }

  // Sets the tokens below `from` that can be read from `state`, which holds there; lists where the
  // first rule may end.
  void walk(std::uint32_t from, State state, Mask& tokens, std::vector<std::uint32_t>* leaving) {
    const auto& nodes = trie->nodes();
    path[nodes[from].depth] = state;
    for (std::uint32_t i = from + 1; i < nodes[from].end;) {
      const TokenTrie::Node& node = nodes[i];
      const State before = path[node.depth - 1u];
      const State here = automaton.next(before, node.byte);
      if (here == GrammarAutomaton::kDead) {
        i = node.end;
        continue;
      }
      for (std::uint32_t t = node.first_token; t < nodes[i + 1].first_token; ++t) {
        const auto id = static_cast<std::size_t>(trie->tokens()[t]);
        tokens[id / 64] |= std::uint64_t{1} << id % 64;
      }
      if (leaving != nullptr && automaton.leaves(here) && node.end > i + 1) leaving->push_back(i);
      path[node.depth] = here;
      i = automaton.reads_on(here) ? i + 1 : node.end;
    }
  }

  const LocalMask& local_mask(std::int32_t place) {
    const auto known = local.find(place);
    if (known != local.end()) return known->second;
    if (local.size() > most_masks()) local.clear();
    LocalMask made = {Mask(words()), {}};
    walk(0, automaton.local_start(place), made.tokens, &made.leaving);
    return local.emplace(place, std::move(made)).first->second;
  }

  Mask make_mask(State state) {
    Mask tokens(words());
    const std::vector<GrammarAutomaton::Stack> tops = automaton.tops(state);
    for (const GrammarAutomaton::Stack stack : tops) {
      const LocalMask& mask = local_mask(automaton.place_of(stack));
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] |= mask.tokens[i];
      if (mask.leaving.empty()) continue;
      const State below = automaton.below(stack);
      if (below == GrammarAutomaton::kDead || !automaton.reads_on(below)) continue;
      for (const std::uint32_t node : mask.leaving) walk(node, below, tokens, nullptr);
    }
    return tokens;
  }
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const TokenTrie> tokens)
    : parts_(std::make_unique<Parts>(std::move(grammar), std::move(tokens))) {
  Mask first(words());
  allow(start(), first);
  require(may_end(start()) || std::ranges::any_of(first, [](auto word) { return word != 0; }),
          kUnwritable);
}

GrammarMatcher::~GrammarMatcher() = default;

std::size_t GrammarMatcher::words() const { return parts_->words(); }

GrammarState GrammarMatcher::start() const { return parts_->automaton.start(); }

GrammarState GrammarMatcher::after(GrammarState state, Token token) {
  const bool known = token >= 0 && static_cast<std::size_t>(token) < parts_->trie->vocabulary();
  const std::string_view bytes = known ? std::string_view(parts_->trie->bytes(token)) : "";
  return bytes.empty() ? kOutOfGrammar : after(state, bytes);
}

GrammarState GrammarMatcher::after(GrammarState state, std::string_view bytes) {
  return parts_->automaton.after(state, bytes);
}

bool GrammarMatcher::may_end(GrammarState state) const {
  return state != kOutOfGrammar && parts_->automaton.may_end(state);
}

bool GrammarMatcher::must_end(GrammarState state) const {
  return may_end(state) && !parts_->automaton.reads_on(state);
}

void GrammarMatcher::allow(GrammarState state, std::span<std::uint64_t> tokens) {
  ensure(tokens.size() == parts_->words(), "grammar: a mask of ", tokens.size(),
         " words, expected ", parts_->words());
  if (state == kOutOfGrammar) {
    std::ranges::fill(tokens, 0);
    return;
  }
  if (parts_->whole.size() > parts_->most_masks()) parts_->whole.clear();
  auto found = parts_->whole.find(state);
  if (found == parts_->whole.end()) {
    found = parts_->whole.emplace(state, parts_->make_mask(state)).first;
  }
  std::ranges::copy(found->second, tokens.begin());
}

}  // namespace leq
