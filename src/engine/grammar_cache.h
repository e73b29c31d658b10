// The grammars of an engine's requests on its vocabulary: requests with one grammar share what was
// found out about it, and the last few are kept for those to come.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "generate/grammar/matcher.h"

namespace leq {

class GrammarCache {
 public:
  // `tokenizer` must outlive the cache.
  GrammarCache(const Tokenizer& tokenizer, std::size_t vocabulary)
      : tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  // Null for null. Throws Error as GrammarMatcher does.
  std::shared_ptr<GrammarMatcher> matcher_of(const std::shared_ptr<const Grammar>& grammar);

 private:
  const Tokenizer& tokenizer_;
  std::size_t vocabulary_;
  std::shared_ptr<const TokenTrie> tokens_;  // made for the first of them
  std::deque<std::pair<std::shared_ptr<const Grammar>, std::shared_ptr<GrammarMatcher>>> known_;
};

}  // namespace leq
