#include "engine/grammar_cache.h"

#include <algorithm>
#include <utility>

namespace leq {
namespace {

constexpr std::size_t kKept = 4;  // each entry may take some hundred megabytes

}  // namespace

std::shared_ptr<GrammarMatcher> GrammarCache::matcher_of(
    const std::shared_ptr<const Grammar>& grammar, std::span<const Token> shown) {
  if (!grammar) return nullptr;
  std::vector<ShownToken> texts = with_texts(tokenizer_, shown);
  const auto known = std::ranges::find_if(
      known_, [&](const Known& one) { return one.grammar == grammar && one.shown == texts; });
  if (known != known_.end()) return known->matcher;
  if (!tokens_) tokens_ = make_token_trie(tokenizer_, vocabulary_);
  if (known_.size() == kKept) known_.pop_front();
  auto matcher = std::make_shared<GrammarMatcher>(grammar, tokens_, texts);
  known_.push_back({grammar, std::move(texts), std::move(matcher)});
  return known_.back().matcher;
}

}  // namespace leq
