#include "server/grammar_store.h"

#include <algorithm>

namespace leq {

std::shared_ptr<const Grammar> GrammarStore::find(const std::string& text) {
  const auto found = std::ranges::find(known_, text, &Known::text);
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return found->grammar;
}

std::shared_ptr<const Grammar> GrammarStore::get(const std::string& text, const Compile& compile) {
  {
    const std::lock_guard lock(mutex_);
    if (auto known = find(text)) return known;
  }
  auto made = compile();
  if (text.size() > kMostBytes) return made;
  const std::lock_guard lock(mutex_);
  if (auto known = find(text)) return known;  // another thread was faster
  known_.push_front({text, made});
  if (known_.size() > kMostGrammars) known_.pop_back();
  return made;
}

}  // namespace leq
