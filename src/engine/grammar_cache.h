// The grammars of an engine's requests on its vocabulary: requests with one grammar share what was
// found out about it, and the last few are kept for those to come.
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

  // Null for null; `shown` as in EngineRequest. Throws Error as GrammarMatcher does.
  std::shared_ptr<GrammarMatcher> matcher_of(const std::shared_ptr<const Grammar>& grammar,
                                             std::span<const Token> shown);

 private:
  const Tokenizer& tokenizer_;
  std::size_t vocabulary_;
  std::shared_ptr<const TokenTrie> tokens_;  // made for the first of them
  struct Known {
    std::shared_ptr<const Grammar> grammar;
    std::vector<ShownToken> shown;
    std::shared_ptr<GrammarMatcher> matcher;
  };
  std::deque<Known> known_;
};

}  // namespace leq
