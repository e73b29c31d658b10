// Prefix cache: a tree of pages of keys and values, with states of recurrent layers at some nodes,
// kept after the requests that computed them. Texts with the same first tokens share them: both are
// functions of the tokens alone, so reuse equals recomputation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/sequence_state.h"
#include "tokenizer/spec.h"

namespace leq {

class PrefixCache {
 public:
  // The caches that `state` refers to must outlive the object.
  explicit PrefixCache(const SequenceState& state) : state_(state), cache_(state.pages()) {}
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Match {
    std::vector<std::int32_t> pages;              // kNoPage for pages outside every layer's window
    std::int64_t tokens = 0;                      // the last page may be used in part
    FixedStates::Id state = FixedStates::kZeros;  // after the tokens, where layers have one
    // Length of the matching prefix, whether or not a sequence can begin after it.
    std::int64_t matched = 0;

    SequenceState::Prefix prefix() const { return {pages, tokens, state}; }
  };
  // The longest cached prefix of `tokens` after which a sequence can begin. `use` marks its nodes
  // as used now.
  Match find(std::span<const Token> tokens, bool use);

  // Shortens a result to at most `tokens`, to a length after which a sequence can begin: where
  // layers have states, to 0 unless that is the full length, since only its state was found.
  void cut(Match& found, std::int64_t tokens) const;

  // Keeps the pages of a sequence whose first tokens are `tokens`: whole pages, and with `last_too`
  // the partial one at the end, which must be copied before it grows. Where a page is kept already,
  // the sequence's own copy is replaced with that one. `state_too`: keeps the sequence's state too,
  // if its position is the end of the last kept page.
  void keep(std::int32_t sequence, std::span<const Token> tokens, bool last_too,
            bool state_too = true);

  // All kept texts that are not prefixes of other kept texts; the most recently used one first.
  std::vector<std::vector<Token>> texts() const;
  // Frees the pages of a text, from its end on, that no sequence holds and no other kept text
  // shares. Returns the number of tokens freed.
  std::int64_t erase(std::span<const Token> tokens);

  bool holds(std::int32_t page) const;
  // Pages that only this cache holds.
  std::int64_t idle_pages() const;
  // Evicts idle pages, least recently used first, until `pages` are free or no idle page is left.
  // Leaves of the tree are evicted first; pages of inner nodes, which lie outside a window, last:
  // these nodes keep their tokens.
  void make_free(std::int64_t pages);
  // The same for states; pages are not evicted.
  void make_states_free(std::int64_t states);

 private:
  // One page of the tree; a text is the tokens along a path from the root, which is node 0 and has
  // no page. Other nodes lack one where it lies outside every window.
  struct Node {
    std::size_t parent = 0;
    std::int32_t page = -1;
    std::vector<Token> tokens;  // at most kPageTokens; fewer only without children
    std::uint64_t hash = 0;     // of the tokens
    std::uint64_t used = 0;     // time of the last use
    std::vector<std::size_t> children;
    FixedStates::Id state = FixedStates::kZeros;  // after its tokens; kZeros: none is kept
  };

  // The child with exactly these tokens; 0: none.
  std::size_t child_of(std::size_t parent, std::span<const Token> tokens) const;
  std::vector<Token> text_of(std::size_t leaf) const;
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
  KvCache& cache_;  // pages of `state_`
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<std::size_t> free_nodes_;
  std::vector<bool> held_;  // by page
  std::uint64_t clock_ = 0;
};

}  // namespace leq
