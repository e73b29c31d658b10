// A cache of the grammars that requests have.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "grammar/grammar.h"

namespace leq {

// A grammar, with notes on the parts of its schemas that it does not enforce.
struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
  SchemaNotes notes = {};
};

// A cache of compiled grammars: requests with the same schema text share one grammar object, and
// with it the token masks that the engine has computed for it. Few are compiled at once, so that
// requests without a grammar go on.
class GrammarStore {
 public:
  using Compile = std::function<CompiledGrammar()>;

  // The cached grammar for this text, or the result of `compile`, which runs in the caller's thread
  // once fewer than kMaxAtOnce others compile. If it throws, the exception propagates and nothing
  // is cached. Throws Error (interrupted) if `stopped` becomes true during the wait.
  CompiledGrammar get(const std::string& text, const Compile& compile,
                      const GrammarStop& stopped = {});
  std::size_t bytes();  // of the texts and grammars that are kept

  static constexpr std::size_t kMaxGrammars = 32;
  static constexpr std::size_t kMaxAtOnce = 2;
  static constexpr std::size_t kMaxBytes = 32 << 20;            // of all texts and grammars
  static constexpr std::size_t kMaxBytesOfOne = kMaxBytes / 4;  // larger ones are not kept

 private:
  struct Known {
    std::string text;
    CompiledGrammar compiled;
    std::size_t bytes = 0;
  };
  const CompiledGrammar* find(const std::string& text);

  std::mutex mutex_;
  std::condition_variable ended_;  // a compilation has
  std::size_t compiling_ = 0, bytes_ = 0;
  std::list<Known> known_;  // most recently used first
};

}  // namespace leq
