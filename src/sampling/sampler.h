// The sampler of one request: from its settings, its text and its grammar, the rule, bans and
// penalties by which a backend draws the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sampling/sample.h"
#include "sampling/settings.h"
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

// DRY, "don't repeat yourself": a token that would extend a sequence which already occurred in the
// text gets a penalty that grows with the sequence's length (docs/sampling.md).
// This class computes the penalties after `context`: token ids below `vocabulary`, ascending and
// unique, each with the value to subtract from its logit. Scratch is reused between calls.
class DryPenalty {
 public:
  std::span<const LogitChange> changes(std::span<const Token> context,
                                       const SamplingSettings& settings,
                                       const DryBreakers& breakers, std::size_t vocabulary);

 private:
  std::vector<std::size_t> lengths_;
  std::vector<LogitChange> changes_;
};

// Converts sampling settings to a SampleRequest for the backend (sampling/sample.h): penalized and
// banned tokens, and a random number that is a pure function of the seed, the reply's number and
// the token's index. Hence the same logits give the same token on every device, at every batch size
// and in every order of execution.

// The position of a token, which together with the seed determines the random number of its draw.
struct SamplePoint {
  std::uint32_t index = 0;   // index of the token in its reply
  std::uint32_t reply = 0;   // number of the reply, counting regenerated ones
  std::uint32_t choice = 0;  // index among the replies to one request; never an engine slot
};

// Ids below `vocabulary` that have no text: those beyond the tokenizer's pieces, and unused pieces.
// A model has logits for them, because its tables are often padded.
std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary);

class Sampler {
 public:
  // `vocabulary`: the number of logits; `banned` ids are never drawn; `breakers`: made from the
  // settings' dry_breakers, or null for none. Throws Error on settings out of range and on ids
  // outside of the vocabulary.
  Sampler(const SamplingSettings& settings, std::size_t vocabulary, std::span<const Token> banned,
          std::shared_ptr<const DryBreakers> breakers = nullptr);
  // Like the constructor above, but computes breakers with this tokenizer if DRY is enabled.
  Sampler(const SamplingSettings& settings, std::size_t vocabulary, std::span<const Token> banned,
          const Tokenizer& tokenizer);

  // The settings of the draw after `context` (prompt and reply), whose last repeat_last_n tokens
  // are penalized. Valid until the next call and while the sampler exists. Not thread-safe: use one
  // sampler for each sequence.
  SampleRequest request(std::span<const Token> context, const SamplePoint& point);
  // Confirms that the last request's token was drawn; its surprise updates Mirostat's mu. mu is a
  // function of the reply's tokens so far and of their logits.
  void took();

  const SamplingSettings& settings() const { return settings_; }
  // Whether a draw depends on earlier tokens in other ways than through the logits.
  bool reads_text() const;

 private:
  bool penalties_act() const;
  bool has_penalties() const;
  void count_recent(std::span<const Token> context);
  void merge(std::span<const LogitChange> more);

  SamplingSettings settings_;
  SampleRule rule_;  // complete except for the random numbers
  std::size_t vocabulary_;
  std::shared_ptr<const DryBreakers> breakers_;
  std::vector<LogitChange> fixed_;  // bans and biases, sorted by unique id
  double surprise_;                 // surprise of Mirostat's last draw; negative if there is none
  // Scratch, reused between calls.
  std::vector<Token> recent_;
  std::vector<LogitChange> repeated_;
  DryPenalty dry_;
  std::vector<LogitChange> changes_;
  std::vector<LogitChange> merged_;
};

}  // namespace leq
