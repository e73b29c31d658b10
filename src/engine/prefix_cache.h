// The sequences of a session that are in use, and the texts of ended requests whose keys, values
// and states are kept for requests that begin with the same tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "cache/sequence_state.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Tracks which sequences of a session are in use.
class SequencePool {
 public:
  explicit SequencePool(int sequences) : taken_(static_cast<std::size_t>(sequences), false) {}

  std::size_t size() const { return taken_.size(); }
  std::int64_t taken() const { return std::ranges::count(taken_, true); }
  bool is_taken(std::int32_t sequence) const { return taken_[static_cast<std::size_t>(sequence)]; }
  bool has_idle() const { return std::ranges::find(taken_, false) != taken_.end(); }

  // The first idle sequence, which stays idle. Throws Error if all sequences are in use.
  std::int32_t idle() const {
    const auto free = std::ranges::find(taken_, false);
    require(free != taken_.end(), "saved prompts: all ", taken_.size(),
            " sequences are in use; try again when a reply has ended, or with more ",
            Setting{"sequences"});
    return static_cast<std::int32_t>(free - taken_.begin());
  }
  std::int32_t take() {
    const std::int32_t sequence = idle();
    taken_[static_cast<std::size_t>(sequence)] = true;
    return sequence;
  }
  void release(std::int32_t sequence) { taken_[static_cast<std::size_t>(sequence)] = false; }

 private:
  std::vector<bool> taken_;
};

// Positions of a prompt at which the fixed state of a model (Gated DeltaNet) is kept. Texts can
// share pages up to any position, but states only at positions where a state was kept.
//
// Ascending positions of a prompt, at most max(most, 2) of them:
// - before the prompt's last special token, which begins the reply of a chat (the next turn's
//   prompt may differ after it, because reasoning is omitted); without a special token, before the
//   prompt's last token, for requests with the same prompt;
// - before the second occurrence of that token, the end of the first message: a system message that
//   other chats share;
// - the last ones, as many as fit, of the ends of later messages and the multiples of the least of
//   512, 1024, 2048 ... that takes at most half of these places: they are spread over the prompt.
std::vector<std::int64_t> state_marks(std::span<const Token> prompt, const Tokenizer& tokenizer,
                                      std::int64_t most);

// The first mark after `fed`; 0 if there is none.
std::int64_t next_mark(std::span<const std::int64_t> marks, std::int64_t fed);

// Prefix cache: a tree of pages of keys and values that are kept after the requests that computed
// them, with states of recurrent layers at some nodes. Texts with the same first tokens share pages
// and states: both depend only on these tokens, so that reuse and recomputation are equivalent.
class PrefixCache {
 public:
  // The caches that `state` refers to must outlive this object.
  explicit PrefixCache(const SequenceState& state) : state_(state), cache_(state.pages()) {}
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    std::vector<std::int32_t> pages;
    std::int64_t tokens = 0;                      // the last page may be partially used
    FixedStates::Id state = FixedStates::kZeros;  // state after the tokens, if layers have states
    // Length of the matching prefix, including tokens after which no sequence can begin.
    std::int64_t matched = 0;

    SequenceState::Prefix prefix() const { return {pages, tokens, state}; }
  };
  // Finds the longest cached prefix of `tokens` after which a sequence can begin. `use` marks the
  // prefix as used now (LRU).
  Match find(std::span<const Token> tokens, bool use);

  // Shortens a result to at most `tokens` tokens. If layers have fixed states, a shortened result
  // is cut to 0, because only the state at the end of the full length was found.
  void cut(Match& found, std::int64_t tokens) const;

  // Keeps the pages of a sequence whose first tokens are `tokens`: whole pages and, with
  // `last_too`, the partial last page, which is then copied before a sequence writes to it. If the
  // cache holds a page already, the sequence's copy is replaced with it, or it with the sequence's
  // copy if that has more (KvCache::sees_more). `state_too`: also keeps
  // the sequence's state, if the sequence ends where the last kept page ends.
  void keep(std::int32_t sequence, std::span<const Token> tokens, bool last_too,
            bool state_too = true);

  // The states that are kept after beginnings of `tokens`, in ascending order of positions.
  struct KeptState {
    std::int64_t position = 0;
    FixedStates::Id state = FixedStates::kZeros;
  };
  std::vector<KeptState> states(std::span<const Token> tokens) const;

  // All kept texts that are not prefixes of other kept texts, the most recently used text first.
  std::vector<std::vector<Token>> texts() const;
  // Frees a text's pages from its last page on, as far as neither a sequence nor another kept text
  // uses them. Returns the number of tokens freed.
  std::int64_t erase(std::span<const Token> tokens);

  bool holds(std::int32_t page) const;
  // Number of pages that are held by this cache alone.
  std::int64_t idle_pages() const;
  // Evicts idle pages, least recently used first, until `pages` are free or no idle page is left.
  // Leaves of the tree are evicted first. Inner nodes, which keep their tokens, are evicted last.
  void make_free(std::int64_t pages);
  // Evicts states, least recently used first, until `states` are free; evicts no pages.
  void make_states_free(std::int64_t states);

 private:
  static constexpr std::int32_t kNoPage = -1;
  // One page of the tree. A text is the tokens on a path from the root, which is node 0 and has no
  // page. Other nodes lack a page if it was evicted before their children: sequences may have other
  // pages of the same text (keep).
  struct Node {
    std::size_t parent = 0;
    std::int32_t page = kNoPage;
    std::vector<Token> tokens;  // at most kPageTokens; fewer only without children
    std::uint64_t hash = 0;     // hash of `tokens`
    std::uint64_t used = 0;     // time of the last use
    std::vector<std::size_t> children;
    FixedStates::Id state = FixedStates::kZeros;  // state after its tokens; kZeros: none is kept
  };

  // The child with exactly these tokens; 0 if there is none.
  std::size_t child_of(std::size_t parent, std::span<const Token> tokens) const;
  std::size_t add(std::size_t parent, std::span<const Token> tokens, std::int32_t page);
  std::size_t keep_partial(std::size_t parent, std::span<const Token> tokens, std::int32_t page);
  std::size_t partial_with_state(std::size_t node, std::span<const Token> tokens) const;
  void drop(std::size_t node);
  void give_page(std::size_t node, std::int32_t page);
  void take_page(std::size_t node);
  void give_state(std::size_t node, std::int32_t sequence, std::int64_t position);
  void take_state(std::size_t node);
  bool is_idle(const Node& node) const { return node.page >= 0 && cache_.holders(node.page) == 1; }

  SequenceState state_;
  KvCache& cache_;  // the cache of pages in `state_`
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<std::size_t> free_nodes_;
  std::vector<bool> held_;  // by page: whether this cache holds it
  std::uint64_t clock_ = 0;
};

}  // namespace leq
