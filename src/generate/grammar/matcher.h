// A grammar on a vocabulary: which tokens may come next. States are numbers that are copied,
// advanced over drafted tokens and dropped; a matcher serves all replies under its grammar, one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// The bytes of all tokens as a tree. Built once for a model; immutable.
class TokenTrie;
std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer,
                                                 std::size_t vocabulary);

// A state of the matcher after some text: a value that stays valid as long as the matcher.
using GrammarState = std::int32_t;
inline constexpr GrammarState kOutOfGrammar = -1;  // no text of the grammar begins so

// A special token that is part of the text, with its bytes.
struct ShownToken {
  Token id = 0;
  std::string bytes;
  bool operator==(const ShownToken&) const = default;
};
std::vector<ShownToken> with_texts(const Tokenizer& tokenizer, std::span<const Token> ids);

class GrammarMatcher {
 public:
  // `shown`: special tokens that stand for their texts (EngineRequest::shown). Throws Error where
  // no token begins a text of the grammar, or each text needs a byte that is in no token.
  GrammarMatcher(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
                 std::vector<ShownToken> shown = {});
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  std::size_t words() const;  // of a mask: ceil(V / 64)
  GrammarState start() const;
  // After one more token, or bytes. One without text changes nothing where allows_all, and is out
  // of the grammar elsewhere. Throws Error where a grammar is so ambiguous that its states take
  // more than they may.
  GrammarState after(GrammarState state, Token token);
  GrammarState after(GrammarState state, std::string_view bytes);

  bool may_end(GrammarState state) const;   // a whole text
  bool must_end(GrammarState state) const;  // ... that nothing can follow

  // Whether the grammar restricts nothing: every token with a text is allowed, and the end.
  bool allows_all(GrammarState state);
  // Sets the bits, [ceil(V / 64)], of exactly the tokens that may come next and clears all others.
  // Tokens without text, end tokens among them, are never set; nor those after which only bytes
  // could follow that are in no token.
  void allow(GrammarState state, std::span<std::uint64_t> tokens);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace leq
