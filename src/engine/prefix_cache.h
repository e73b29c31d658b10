// What outlives the requests that made it: pages of keys and values, and states of recurrent layers
// at the ends of some. A text that begins with the same tokens begins with them: all are functions
// of the tokens before them, so they are what feeding would have made.
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
  // What `state` looks at must outlive it.
  explicit PrefixCache(const SequenceState& state) : state_(state), cache_(state.pages()) {}
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  struct Found {
    std::vector<std::int32_t> pages;              // kNoPage for what no window sees any more
    std::int64_t tokens = 0;                      // the last page may be used in part
    FixedStates::Id state = FixedStates::kZeros;  // after the tokens, where layers have one
    // Tokens that are there alike, whether or not a sequence can begin after them.
    std::int64_t alike = 0;

    SequenceState::Prefix prefix() const { return {pages, tokens, state}; }
  };
  // The longest beginning of `tokens` that is there and that a sequence can begin with. It counts
  // as used now where `use` is set.
  Found find(std::span<const Token> tokens, bool use);

  // Cuts what was found to at most `tokens`, and to what a sequence can begin with: nothing where
  // that is not all of it and layers have states, of which there is one only.
  void cut(Found& found, std::int64_t tokens) const;

  // The sequence holds `tokens` from its start; what is whole of its pages is kept, and with
  // `last_too` the partial one at its end, which must be copied before it grows. Where a page is
  // kept already, the sequence takes that one for its own. `state_too`: its state is kept where it
  // is that of the last token of a page that is kept.
  void keep(std::int32_t sequence, std::span<const Token> tokens, bool last_too,
            bool state_too = true);

  // All texts that are kept, none of which another begins with; the one used last comes first.
  std::vector<std::vector<Token>> texts() const;
  // Frees the pages of a text that no sequence holds and that no other text begins with, from its
  // end on. Returns of how many tokens.
  std::int64_t forget(std::span<const Token> tokens);

  bool holds(std::int32_t page) const;
  // Pages that only this cache holds.
  std::int64_t idle_pages() const;
  // Gives up idle pages, those that were not used for longest first, until so many are free or none
  // is left. Ends of texts go before what others build upon; where a window hides beginnings, these
  // go last and their tokens stay.
  void make_free(std::int64_t pages);
  // The same for states; the pages stay.
  void make_states_free(std::int64_t states);

 private:
  // A page; its tokens come after those of its parents. The first node is the root, without a page;
  // others may be without one where a window hides it.
  struct Node {
    std::size_t parent = 0;
    std::int32_t page = -1;
    std::vector<Token> tokens;  // at most kPageTokens; fewer only without children
    std::uint64_t hash = 0;     // of them
    std::uint64_t used = 0;     // the clock then
    std::vector<std::size_t> children;
    FixedStates::Id state = FixedStates::kZeros;  // after its tokens; kZeros: none is kept
  };

  // The child with just these tokens; 0 for none.
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
  KvCache& cache_;  // its pages
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<std::size_t> free_nodes_;
  std::vector<bool> held_;  // by page
  std::uint64_t clock_ = 0;
};

}  // namespace leq
