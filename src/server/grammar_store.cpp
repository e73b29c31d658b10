#include "server/grammar_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace leq {

const CompiledGrammar* GrammarStore::find(const std::string& text) {
  const auto found = std::ranges::find(known_, text, &Known::text);
  if (found == known_.end()) return nullptr;
  known_.splice(known_.begin(), known_, found);
  return &found->compiled;
}

CompiledGrammar GrammarStore::get(const std::string& text, const Compile& compile,
                                  const GrammarStop& stopped) {
  constexpr auto kLook = std::chrono::milliseconds(100);  // between two looks at `stopped`
  CompiledGrammar made;
  {
    std::unique_lock lock(mutex_);
    while (true) {
      if (const auto* known = find(text)) return *known;
      if (compiling_ < kMaxAtOnce) break;
      ended_.wait_for(lock, kLook);
      require(!stopped || !stopped(), ErrorKind::interrupted, "the client has left");
    }
    ++compiling_;
  }
  const auto end = [&] {
    const std::lock_guard lock(mutex_);
    --compiling_;
    ended_.notify_all();
  };
  try {
    made = compile();
  } catch (...) {
    end();
    throw;
  }
  end();
  std::size_t bytes = text.size() + (made.grammar ? made.grammar->bytes() : 0);
  for (const std::string& note : made.notes) bytes += note.size();
  if (bytes > kMaxBytesOfOne) return made;
  const std::lock_guard lock(mutex_);
  if (const auto* known = find(text)) return *known;  // another thread has compiled it meanwhile
  known_.push_front({text, made, bytes});
  bytes_ += bytes;
  while (known_.size() > kMaxGrammars || bytes_ > kMaxBytes) {
    bytes_ -= known_.back().bytes;
    known_.pop_back();
  }
  return made;
}

std::size_t GrammarStore::bytes() {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace leq
