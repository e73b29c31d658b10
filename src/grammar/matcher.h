// Applies a grammar to a vocabulary: which tokens may come next. A state is a number that can be
// copied, advanced over drafted tokens and dropped; one matcher serves all replies with the same
// grammar, one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// The bytes of all tokens as a prefix tree, built once for a model; immutable.
class TokenTrie;
std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer,
                                                 std::size_t vocabulary);

// The matcher's state after some text: a number that is valid as long as the matcher.
using GrammarState = std::int32_t;
inline constexpr GrammarState kOutOfGrammar = -1;  // no text of the grammar has this prefix

// A special token that is part of the text, with its bytes.
struct ShownToken {
  Token id = 0;
  std::string bytes;
  bool operator==(const ShownToken&) const = default;
};
std::vector<ShownToken> with_texts(const Tokenizer& tokenizer, std::span<const Token> ids);

class GrammarMatcher {
 public:
  // `shown`: special tokens that represent their texts (EngineRequest::shown). Throws Error if no
  // token begins a text of the grammar, or if every text needs a byte that no token contains.
  GrammarMatcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
                 std::vector<ShownToken> shown = {}, const GrammarLimits& limits = {});
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  std::size_t words() const;  // words of a mask: ceil(V / 64)
  std::size_t bytes() const;  // of memory, about, with the grammar and the masks so far
  // Whether more than half of a limit is used, by all replies so far.
  bool is_crowded() const;
  // A matcher like this one that has not been used.
  std::shared_ptr<GrammarMatcher> emptied() const;
  GrammarState start() const;
  // The state after one more token, or after bytes. A token without text leaves the state unchanged
  // if allows_all, otherwise gives kOutOfGrammar. Throws Error if the grammar is so ambiguous that
  // its states exceed the memory limit.
  GrammarState after(GrammarState state, Token token);
  GrammarState after(GrammarState state, std::string_view bytes);

  bool may_end(GrammarState state) const;   // the text so far is complete
  bool must_end(GrammarState state) const;  // the text is complete and cannot be continued

  // Whether nothing is restricted: every token that has text is allowed, and so is the end.
  bool allows_all(GrammarState state);
  // Sets the bits, [ceil(V / 64)], of exactly the tokens that may come next and clears all others.
  // Tokens without text, such as end tokens, are never set; nor are tokens that could be followed
  // only by bytes that no token contains.
  void allow(GrammarState state, std::span<std::uint64_t> tokens);

 private:
  struct Parts;
  std::shared_ptr<const Grammar> grammar_;
  GrammarLimits limits_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace leq
