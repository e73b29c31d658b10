#include "server/grammar_store.h"

#include <algorithm>

namespace leq {

const CompiledGrammar* GrammarStore::find(const std::string& text) {
  const auto found = std::ranges::find(known_, text, &Known::text);
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return &found->compiled;
}

CompiledGrammar GrammarStore::get(const std::string& text, const Compile& compile) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto* known = find(text)) return *known;
  }
  CompiledGrammar made = compile();
  if (text.size() > kMostBytes) return made;
  const std::lock_guard lock(mutex_);
  if (const auto* known = find(text)) return *known;  // another thread has compiled it meanwhile
  known_.push_front({text, made});
  if (known_.size() > kMostGrammars) known_.pop_back();
  return made;
}

}  // namespace leq
