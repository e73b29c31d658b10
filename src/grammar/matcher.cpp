#include "grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "format/leq_layout.h"
#include "grammar/automaton.h"

namespace leq {
namespace {

constexpr std::size_t kMaxTops = 4'000;  // limit for one state

}  // namespace

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar,
                                   const GrammarLimits& limits)
    : grammar_(std::move(grammar)), limits_(limits) {
  const auto places = static_cast<std::int32_t>(grammar_->places());
  std::array<bool, 257> begins = {};
  for (std::int32_t i = 0; i < places; ++i) {
    for (const auto& edge : grammar_->place(i).edges) {
      begins[edge.first] = true;
      begins[std::size_t{edge.last} + 1] = true;
    }
  }
  // Bytes that no edge distinguishes form one class.
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++classes_;
    class_of_[byte] = static_cast<std::uint16_t>(classes_);
  }
  ++classes_;
  stacks_.resize(2);  // kEnd, kElsewhere
  open_.push_back(stack_of(grammar_->start_of(grammar_->root()), kEnd));
  start_ = close();
}

GrammarAutomaton::Stack GrammarAutomaton::stack_of(std::int32_t place, Stack below) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(place)) << 32 |
                            static_cast<std::uint32_t>(below);
  if (const auto known = stack_ids_.find(key); known != stack_ids_.end()) return known->second;
  require(stacks_.size() < limits_.stacks, "grammar: it nests deeper, or in more ways, than ",
          limits_.stacks, " places can hold");
  const auto made = static_cast<Stack>(stacks_.size());
  stacks_.push_back({place, below});
  stack_ids_.emplace(key, made);
  return made;
}

std::int32_t GrammarAutomaton::set_place(SetPlace place) {
  const auto next = static_cast<std::int32_t>(grammar_->places() + made_places_.size());
  const auto [known, is_new] = set_ids_.emplace(std::move(place), next);
  if (is_new) made_places_.push_back({known->first});
  return known->second;
}

void GrammarAutomaton::expand(MadePlace& place) {
  const SetPlace& here = place.of;
  const Grammar::Set& set = grammar_->sets()[static_cast<std::size_t>(here.set)];
  const auto taken = static_cast<std::size_t>(std::ranges::count(here.left, false));
  const bool more = taken < set.most;
  bool may_end = here.phase != SetPhase::after_comma && taken >= set.least, any = set.other >= 0;
  for (std::size_t i = 0; i < set.members.size(); ++i) {
    may_end = may_end && !(here.left[i] && set.members[i].required);
    any = any || (here.left[i] && more);
  }
  if (may_end) place.skips.push_back(set.end);
  if (here.phase == SetPhase::after_member && set.comma >= 0) {
    if (any) {
      place.calls.push_back({set.comma, set_place({here.set, SetPhase::after_comma, here.left})});
    }
    return;
  }
  for (std::size_t i = 0; i < set.members.size(); ++i) {
    if (!here.left[i] || !more) continue;
    SetPlace next = {here.set, SetPhase::after_member, here.left};
    next.left[i] = false;
    place.calls.push_back({set.members[i].rule, set_place(std::move(next))});
  }
  if (set.other >= 0) {
    place.calls.push_back({set.other, set_place({here.set, SetPhase::after_member, here.left})});
  }
}

Grammar::Place GrammarAutomaton::place_at(std::int32_t id) {
  const std::size_t own = grammar_->places();
  auto at = static_cast<std::size_t>(id);
  if (at < own) {
    const Grammar::Place place = grammar_->place(id);
    if (place.set < 0) return place;
    const auto set = static_cast<std::size_t>(place.set);
    const std::vector<bool> all(grammar_->sets()[set].members.size(), true);
    at = static_cast<std::size_t>(set_place({place.set, SetPhase::start, all}));
  }
  MadePlace& made = made_places_[at - own];
  if (!std::exchange(made.is_made, true)) expand(made);
  return {{}, made.calls, made.skips};
}

std::size_t GrammarAutomaton::bytes() const {
  constexpr std::size_t kEntry = 48;  // of a hash table, about
  std::size_t bytes = grammar_->bytes() + stacks_.size() * (sizeof(StackNode) + kEntry) +
                      states_.size() * (sizeof(Info) + kEntry) + 4 * (kept_ + next_.size());
  for (const MadePlace& made : made_places_) {
    bytes += sizeof(MadePlace) + kEntry + made.of.left.size() / 4 + 12 * made.calls.size();
  }
  return bytes;
}

GrammarAutomaton::State GrammarAutomaton::close() {
  Info made;
  ++turn_;
  seen_.resize(std::max(seen_.size(), stacks_.size()));
  while (!open_.empty()) {
    const Stack stack = open_.back();
    open_.pop_back();
    if (stack == kEnd || stack == kElsewhere) {
      (stack == kEnd ? made.may_end : made.leaves) = true;
      continue;
    }
    if (static_cast<std::size_t>(stack) >= seen_.size()) seen_.resize(stacks_.size());
    if (std::exchange(seen_[static_cast<std::size_t>(stack)], turn_) == turn_) continue;
    const StackNode here = node(stack);
    const Grammar::Place place = place_at(here.place);
    if (!place.edges.empty()) made.tops.push_back(stack);
    if (place.ends) open_.push_back(here.below);
    for (const std::int32_t to : place.skips) open_.push_back(stack_of(to, here.below));
    for (const auto& call : place.calls) {
      // If the rule ends right after the call, no frame is pushed, so lists do not grow the stack.
      const Stack back = only_ends(call.back) ? here.below : stack_of(call.back, here.below);
      open_.push_back(stack_of(grammar_->start_of(call.rule), back));
    }
    if (made.tops.size() > kMaxTops) {
      open_.clear();
      fail("grammar: it is ambiguous in more than ", kMaxTops, " ways");
    }
  }
  if (made.tops.empty() && !made.may_end && !made.leaves) return kDead;
  std::ranges::sort(made.tops);
  return state_of(std::move(made));
}

GrammarAutomaton::State GrammarAutomaton::state_of(Info made) {
  const std::uint64_t mark = checksum(std::as_bytes(std::span(made.tops))) * 4 +
                             (made.may_end ? 2u : 0u) + (made.leaves ? 1u : 0u);
  const auto [from, to] = state_ids_.equal_range(mark);
  for (auto known = from; known != to; ++known) {
    const Info& other = info(known->second);
    if (other.tops == made.tops && other.may_end == made.may_end && other.leaves == made.leaves) {
      return known->second;
    }
  }
  const std::size_t kept = kept_ + made.tops.size() + classes_;
  require(kept <= limits_.kept, "grammar: its states take more memory than they may");
  kept_ = kept;
  const auto id = static_cast<State>(states_.size());
  states_.push_back(std::move(made));
  state_ids_.emplace(mark, id);
  next_.resize(next_.size() + classes_, kUnknownState);
  return id;
}

GrammarAutomaton::State GrammarAutomaton::find_next(State state, std::uint8_t byte) {
  open_.clear();
  for (const Stack stack : info(state).tops) {
    const StackNode here = node(stack);
    for (const auto& edge : grammar_->place(here.place).edges) {
      if (byte >= edge.first && byte <= edge.last) open_.push_back(stack_of(edge.to, here.below));
    }
  }
  const State found = close();
  next_[static_cast<std::size_t>(state) * classes_ + class_of_[byte]] = found;
  return found;
}

GrammarAutomaton::State GrammarAutomaton::after(State state, std::string_view bytes) {
  for (const char byte : bytes) {
    if (state == kDead) return kDead;
    state = next(state, static_cast<std::uint8_t>(byte));
  }
  return state;
}

GrammarAutomaton::State GrammarAutomaton::below(Stack stack) {
  const Stack rest = node(stack).below;
  const auto known = below_.find(rest);
  if (known != below_.end()) return known->second;
  open_.assign(1, rest);
  const State state = close();
  below_.emplace(rest, state);
  return state;
}

GrammarAutomaton::State GrammarAutomaton::local_start(std::int32_t place) {
  const auto known = local_.find(place);
  if (known != local_.end()) return known->second;
  Info made;
  made.tops.push_back(stack_of(place, kElsewhere));
  const State state = state_of(std::move(made));
  local_.emplace(place, state);
  return state;
}

// The bytes of a vocabulary's tokens as a prefix tree, with its nodes in depth-first order: a
// traversal is one pass over the list, and skipping a subtree is one step.
class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;        // number of bytes from the root, which has depth 0
    std::uint32_t end = 0;          // the index after the last node of this subtree
    std::uint32_t first_token = 0;  // in tokens(); the next node's is the end
  };

  // Tokens without bytes are not in the tree, nor are tokens longer than 65,535 bytes.
  TokenTrie(const Tokenizer& tokenizer, std::size_t vocabulary) : bytes_(vocabulary) {
    constexpr std::size_t kLongest = std::numeric_limits<std::uint16_t>::max();
    for (std::size_t i = 0; i < std::min(vocabulary, tokenizer.size()); ++i) {
      const auto id = static_cast<Token>(i);
      std::string bytes = tokenizer.token_bytes(id);
      if (bytes.empty() || bytes.size() > kLongest) continue;
      bytes_[i] = std::move(bytes);
      tokens_.push_back(id);
    }
    std::ranges::sort(tokens_, [&](Token a, Token b) {
      const int order = bytes(a).compare(bytes(b));
      return order != 0 ? order < 0 : a < b;
    });
    nodes_.push_back({});
    std::vector<std::uint32_t> open = {0};  // the ancestors of the next node
    for (std::uint32_t t = 0; t < tokens_.size(); ++t) {
      const std::string& text = bytes(tokens_[t]);
      std::size_t common = 0;
      if (t > 0) {
        const std::string& before = bytes(tokens_[t - 1]);
        while (common < std::min(before.size(), text.size()) && before[common] == text[common]) {
          ++common;
        }
      }
      while (open.size() > common + 1) {
        nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
        open.pop_back();
      }
      for (std::size_t i = common; i < text.size(); ++i) {
        open.push_back(static_cast<std::uint32_t>(nodes_.size()));
        used_bytes_.set(static_cast<std::uint8_t>(text[i]));
        nodes_.push_back({.byte = static_cast<std::uint8_t>(text[i]),
                          .depth = static_cast<std::uint16_t>(i + 1),
                          .first_token = t});
      }
      longest_ = std::max(longest_, static_cast<std::uint16_t>(text.size()));
    }
    for (const std::uint32_t node : open)
      nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({.end = static_cast<std::uint32_t>(nodes_.size()) + 1,
                      .first_token = static_cast<std::uint32_t>(tokens_.size())});
  }

  std::size_t vocabulary() const { return bytes_.size(); }
  const std::string& bytes(Token id) const { return bytes_[static_cast<std::size_t>(id)]; }
  const std::vector<Node>& nodes() const { return nodes_; }  // root first; a sentinel at the end
  const std::vector<Token>& tokens() const { return tokens_; }
  std::uint16_t longest() const { return longest_; }
  const std::bitset<256>& used_bytes() const { return used_bytes_; }  // bytes that occur in tokens

 private:
  std::vector<std::string> bytes_;  // indexed by token
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::uint16_t longest_ = 0;
  std::bitset<256> used_bytes_;
};

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer,
                                                 std::size_t vocabulary) {
  return std::make_shared<const TokenTrie>(tokenizer, vocabulary);
}

namespace {

using State = GrammarAutomaton::State;
using Mask = std::vector<std::uint64_t>;

constexpr std::size_t kKeptMaskBytes = std::size_t{64} << 20;  // for each kind of mask

constexpr const char* kUnwritable =
    "grammar: this model's tokens can write no text that it allows; try another grammar or schema, "
    "or another model";

// The grammar without texts that need a byte which no token of the vocabulary contains.
std::shared_ptr<const Grammar> writable(std::shared_ptr<const Grammar> grammar,
                                        const TokenTrie& tokens,
                                        std::span<const ShownToken> shown) {
  std::bitset<256> bytes = tokens.used_bytes();
  for (const ShownToken& token : shown) {
    for (const char byte : token.bytes) bytes.set(static_cast<std::uint8_t>(byte));
  }
  std::shared_ptr<const Grammar> left = Grammar::written_with(std::move(grammar), bytes);
  require(left != nullptr, kUnwritable);
  return left;
}

}  // namespace

// The mask of allowed tokens at a place does not depend on the caller of its rule, so that it is
// computed only once. Only tokens that extend past the rule's end depend on the stack below.
struct GrammarMatcher::Parts {
  struct LocalMask {
    Mask tokens;
    std::vector<std::uint32_t> leaving;  // trie nodes at which the rule may end
  };

  std::shared_ptr<const TokenTrie> trie;
  GrammarAutomaton automaton;
  std::unordered_map<std::int32_t, LocalMask> local;  // by place
  std::size_t kept_nodes = 0;                         // in `leaving` of all of them
  struct WholeMask {
    Mask tokens;
    bool all = false;  // all tokens that have text are allowed
  };
  std::unordered_map<State, WholeMask> whole;  // by state
  std::vector<ShownToken> shown;
  std::vector<State> path;  // scratch of mark_allowed(): the state at each depth

  Parts(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
        std::vector<ShownToken> shown_ones, const GrammarLimits& limits)
      : trie(std::move(tokens)),
        automaton(writable(std::move(grammar), *trie, shown_ones), limits),
        shown(std::move(shown_ones)),
        path(std::size_t{trie->longest()} + 1) {}

  std::size_t words() const { return (trie->vocabulary() + 63) / 64; }
  std::size_t most_masks() const {
    return std::max<std::size_t>(16, kKeptMaskBytes / (8 * words() + 64));
  }

  // Sets the bits of tokens below trie node `from` that can be read, starting in `state` at that
  // node. `leaving` gets the nodes at which the first rule may end.
  void mark_allowed(std::uint32_t from, State state, Mask& tokens,
                    std::vector<std::uint32_t>* leaving) {
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
      i = automaton.can_read(here) ? i + 1 : node.end;
    }
  }

  std::size_t bytes() const {
    return automaton.bytes() + (local.size() + whole.size()) * (8 * words() + 128) + 4 * kept_nodes;
  }

  const LocalMask& local_mask(std::int32_t place) {
    const auto known = local.find(place);
    if (known != local.end()) return known->second;
    if (local.size() > most_masks() || 4 * kept_nodes > kKeptMaskBytes) {
      local.clear();
      kept_nodes = 0;
    }
    LocalMask made = {Mask(words()), {}};
    mark_allowed(0, automaton.local_start(place), made.tokens, &made.leaving);
    kept_nodes += made.leaving.size();
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
      if (below == GrammarAutomaton::kDead || !automaton.can_read(below)) continue;
      for (const std::uint32_t node : mask.leaving) mark_allowed(node, below, tokens, nullptr);
    }
    for (const ShownToken& token : shown) {
      if (automaton.after(state, token.bytes) == GrammarAutomaton::kDead) continue;
      const auto id = static_cast<std::size_t>(token.id);
      tokens[id / 64] |= std::uint64_t{1} << id % 64;
    }
    return tokens;
  }

  const WholeMask& whole_mask(State state) {
    const auto known = whole.find(state);
    if (known != whole.end()) return known->second;
    if (whole.size() > most_masks()) whole.clear();
    WholeMask made = {make_mask(state)};
    std::size_t allowed = 0;
    for (const std::uint64_t word : made.tokens)
      allowed += static_cast<std::size_t>(std::popcount(word));
    made.all = allowed == trie->tokens().size() + shown.size();
    return whole.emplace(state, std::move(made)).first->second;
  }

  const std::string& bytes(Token token) const {
    const auto found = std::ranges::find(shown, token, &ShownToken::id);
    return found != shown.end() ? found->bytes : trie->bytes(token);
  }
};

// The given special tokens that have no bytes of their own, with their texts.
std::vector<ShownToken> with_texts(const Tokenizer& tokenizer, std::span<const Token> ids) {
  std::vector<ShownToken> shown;
  for (const Token id : ids) {
    std::string bytes = tokenizer.decode(std::span(&id, 1), true);
    if (tokenizer.token_bytes(id).empty() && !bytes.empty())
      shown.push_back({id, std::move(bytes)});
  }
  return shown;
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar,
                               std::shared_ptr<const TokenTrie> tokens,
                               std::vector<ShownToken> shown, const GrammarLimits& limits)
    : grammar_(grammar),
      limits_(limits),
      parts_(std::make_unique<Parts>(std::move(grammar), std::move(tokens), std::move(shown),
                                     limits)) {
  Mask first(words());
  allow(start(), first);
  require(may_end(start()) || std::ranges::any_of(first, [](auto word) { return word != 0; }),
          kUnwritable);
}

GrammarMatcher::~GrammarMatcher() = default;

std::size_t GrammarMatcher::words() const { return parts_->words(); }

std::size_t GrammarMatcher::bytes() const { return parts_->bytes(); }

bool GrammarMatcher::is_crowded() const { return parts_->automaton.is_crowded(); }

std::shared_ptr<GrammarMatcher> GrammarMatcher::emptied() const {
  return std::make_shared<GrammarMatcher>(grammar_, parts_->trie, parts_->shown, limits_);
}

GrammarState GrammarMatcher::start() const { return parts_->automaton.start(); }

GrammarState GrammarMatcher::after(GrammarState state, Token token) {
  if (token < 0 || static_cast<std::size_t>(token) >= parts_->trie->vocabulary()) {
    return kOutOfGrammar;
  }
  const std::string_view bytes = parts_->bytes(token);
  if (bytes.empty()) return allows_all(state) ? state : kOutOfGrammar;
  return after(state, bytes);
}

GrammarState GrammarMatcher::after(GrammarState state, std::string_view bytes) {
  return parts_->automaton.after(state, bytes);
}

bool GrammarMatcher::may_end(GrammarState state) const {
  return state != kOutOfGrammar && parts_->automaton.may_end(state);
}

bool GrammarMatcher::must_end(GrammarState state) const {
  return may_end(state) && !parts_->automaton.can_read(state);
}

bool GrammarMatcher::allows_all(GrammarState state) {
  return may_end(state) && parts_->whole_mask(state).all;
}

void GrammarMatcher::allow(GrammarState state, std::span<std::uint64_t> tokens) {
  ensure(tokens.size() == parts_->words(), "grammar: a mask of ", tokens.size(),
         " words, expected ", parts_->words());
  if (state == kOutOfGrammar) {
    std::ranges::fill(tokens, 0);
    return;
  }
  std::ranges::copy(parts_->whole_mask(state).tokens, tokens.begin());
}

}  // namespace leq
