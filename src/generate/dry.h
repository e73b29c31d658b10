// DRY, "don't repeat yourself": a token that would extend a sequence which already occurred in the
// text gets a penalty that grows with the sequence's length (docs/sampling.md).
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

// Texts that end a repeated sequence, as the tokens that contain them.
class DryBreakers {
 public:
  DryBreakers() = default;  // none
  // Scans the bytes of all tokens for the breakers.
  DryBreakers(const Tokenizer& tokenizer, std::span<const std::string> texts);

  // The number of tokens after the last breaker; all tokens if there is no breaker.
  std::size_t tokens_since(std::span<const Token> context) const;
  // Whether the token contains a whole breaker; such a token is never penalized.
  bool is_breaker(Token id) const;

 private:
  // Maps a token that contains a breaker, or ends with its start, to the tokens that complete it.
  std::multimap<Token, std::vector<Token>> rests_;
};

// Whether the settings enable DRY.
bool uses_dry(const SamplingSettings& settings);

// Computes the penalties after `context`: token ids below `vocabulary`, ascending and unique, each
// with the value to subtract from its logit. Scratch is reused between calls.
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
