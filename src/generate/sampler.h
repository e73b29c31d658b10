// Turns sampling settings into a SampleRequest for the backend (backend/sample.h): penalised and
// banned tokens, and a random number that is a pure function of the seed, the reply's number and
// the token's index. So the same logits give the same token on every device, at every batch size
// and in every order of work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/sample.h"
#include "generate/dry.h"
#include "model/sampling_settings.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Where a token stands; together with the seed it determines the random number of its draw.
struct SamplePoint {
  std::uint32_t index = 0;   // of the token in its reply
  std::uint32_t reply = 0;   // number of the reply, regenerated ones counted too
  std::uint32_t choice = 0;  // which of several replies to one request; never a slot of an engine
};

// Ids below `vocabulary` that stand for no text: those beyond the tokenizer's pieces and the unused
// ones among them. A model has logits for them, since its tables are often padded.
std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary);

class Sampler {
 public:
  // `vocabulary`: the number of logits; `banned` ids are never drawn; `breakers`: of the settings'
  // dry_breakers, null for none. Throws Error on settings out of range and on ids outside of the
  // vocabulary.
  Sampler(const SamplingSettings& settings, std::size_t vocabulary, std::span<const Token> banned,
          std::shared_ptr<const DryBreakers> breakers = nullptr);
  // The same with the breakers of this tokenizer, where the settings have use for them.
  Sampler(const SamplingSettings& settings, std::size_t vocabulary, std::span<const Token> banned,
          const Tokenizer& tokenizer);

  // How to draw the token after `context`, prompt and reply, of which the last repeat_last_n are
  // penalised. Valid until the next call, and as long as the sampler is. Not thread-safe: a sampler
  // for each sequence.
  SampleRequest request(std::span<const Token> context, const SamplePoint& point);
  // Confirms the token that the last request drew, whose surprise updates Mirostat's mu. mu is a
  // function of the reply's tokens so far and of their logits.
  void took();

  const SamplingSettings& settings() const { return settings_; }
  // Whether a draw depends on which tokens came before it beside the logits.
  bool reads_text() const;

 private:
  bool penalties_act() const;
  bool has_penalties() const;
  void count_recent(std::span<const Token> context);
  void merge(std::span<const LogitChange> more);

  SamplingSettings settings_;
  SampleRule rule_;  // but for the random numbers
  std::size_t vocabulary_;
  std::shared_ptr<const DryBreakers> breakers_;
  std::vector<LogitChange> fixed_;  // banned tokens and biases; ids ascending, each once
  double surprise_;                 // of the last draw, where Mirostat made it; or negative
  // Scratch, kept between calls.
  std::vector<Token> recent_;
  std::vector<LogitChange> repeated_;
  DryPenalty dry_;
  std::vector<LogitChange> changes_;
  std::vector<LogitChange> merged_;
};

}  // namespace leq
