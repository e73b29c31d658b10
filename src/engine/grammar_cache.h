// Creates the grammar matchers of an engine's requests. Requests with the same grammar share its
// compiled tables, and the most recent grammars are kept for later requests.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "generate/grammar/matcher.h"

namespace leq {

class GrammarCache {
 public:
  // `tokenizer` must outlive the cache.
  GrammarCache(const Tokenizer& tokenizer, std::size_t vocabulary)
      : tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  // Returns null if the grammar is null; `shown` as in EngineRequest. Throws like GrammarMatcher.
  std::shared_ptr<GrammarMatcher> matcher_of(const std::shared_ptr<const Grammar>& grammar,
                                             std::span<const Token> shown);

 private:
  const Tokenizer& tokenizer_;
  std::size_t vocabulary_;
  std::shared_ptr<const TokenTrie> tokens_;  // built when the first grammar is used
  struct Known {
    std::shared_ptr<const Grammar> grammar;
    std::vector<ShownToken> shown;
    std::shared_ptr<GrammarMatcher> matcher;
  };
  std::deque<Known> known_;
};

}  // namespace leq
