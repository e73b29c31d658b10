// Grammars that clients' schemas became: a request with the text of an earlier one gets the same
// object, and so the masks that the engine has found for it.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "generate/grammar/grammar.h"

namespace leq {

// A grammar, and what it does not hold of the schemas that it was made of.
struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
  SchemaNotes notes = {};
};

class GrammarStore {
 public:
  using Compile = std::function<CompiledGrammar()>;

  // The grammar that is kept under this text, or what `compile` makes of it: in the thread that
  // asks, without stopping others. What it throws comes out and is not kept.
  CompiledGrammar get(const std::string& text, const Compile& compile);

  static constexpr std::size_t kMostGrammars = 32;
  static constexpr std::size_t kMostBytes = 1 << 20;  // of a text that is kept

 private:
  struct Known {
    std::string text;
    CompiledGrammar compiled;
  };
  const CompiledGrammar* find(const std::string& text);

  std::mutex mutex_;
  std::list<Known> known_;  // the one used last first
};

}  // namespace leq
