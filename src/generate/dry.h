// DRY, "don't repeat yourself": a token that would make a sequence longer which stood in the text
// before costs more the longer that sequence is (docs/sampling.md).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/sample.h"
#include "model/sampling_settings.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Texts over which no sequence reaches, as the tokens that spell them.
class DryBreakers {
 public:
  DryBreakers() = default;  // none
  // Looks at the bytes of all tokens.
  DryBreakers(const Tokenizer& tokenizer, std::span<const std::string> texts);

  // How many of the last tokens stand after the last breaker: all where there is none.
  std::size_t tokens_since(std::span<const Token> context) const;
  // The token holds a whole breaker: it is never penalised.
  bool is_breaker(Token id) const;

 private:
  // By a token that holds the breaker, or ends with its beginning: the tokens of the rest.
  std::multimap<Token, std::vector<Token>> rests_;
};

// Whether the settings ask for it.
bool uses_dry(const SamplingSettings& settings);

// What is subtracted from which logits after `context`, ids ascending, each once, below
// `vocabulary`. Scratch is kept between calls.
class DryPenalty {
 public:
  std::span<const LogitChange> changes(std::span<const Token> context,
                                       const SamplingSettings& settings,
                                       const DryBreakers& breakers, std::size_t vocabulary);

 private:
  std::vector<std::size_t> lengths_;
  std::vector<LogitChange> changes_;
};

}  // namespace leq
