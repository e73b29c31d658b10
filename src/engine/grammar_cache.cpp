#include "engine/grammar_cache.h"

#include <algorithm>

namespace leq {
namespace {

constexpr std::size_t kKept = 4;  // each may hold some hundred megabytes

}  // namespace

std::shared_ptr<GrammarMatcher> GrammarCache::matcher_of(
    const std::shared_ptr<const Grammar>& grammar) {
  if (!grammar) return nullptr;
  const auto known =
      std::ranges::find(known_, grammar, [](const auto& entry) { return entry.first; });
  if (known != known_.end()) return known->second;
  if (!tokens_) tokens_ = make_token_trie(tokenizer_, vocabulary_);
  if (known_.size() == kKept) known_.pop_front();
  known_.emplace_back(grammar, std::make_shared<GrammarMatcher>(grammar, tokens_));
  return known_.back().second;
}

}  // namespace leq
