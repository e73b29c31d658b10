// A cache of compiled grammars: requests with the same schema text share one grammar object, and
// with it the token masks that the engine has computed for it.
#pragma once

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

class GrammarStore {
 public:
  using Compile = std::function<CompiledGrammar()>;

  // The cached grammar for this text, or the result of `compile`, which runs in the caller's thread
  // without blocking other callers. If it throws, the exception propagates and nothing is cached.
  CompiledGrammar get(const std::string& text, const Compile& compile);

  static constexpr std::size_t kMostGrammars = 32;
  static constexpr std::size_t kMostBytes = 1 << 20;  // maximum length of a cached text

 private:
  struct Known {
    std::string text;
    CompiledGrammar compiled;
  };
  const CompiledGrammar* find(const std::string& text);

  std::mutex mutex_;
  std::list<Known> known_;  // most recently used first
};

}  // namespace leq
