// What a user says about sampling, made into what a backend needs to draw a token
// (backend/sample.h): the penalised and the banned tokens, and a random number that is a pure
// function of the seed and of where in which reply the token stands. So the same logits give the
// same token on every device, at every batch size and in every order of work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/sample.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// The defaults are those of a run that neither flags nor the model's generation_config change.
struct SamplingSettings {
  float temperature = 0.8f;     // 0: the token of the largest raw logit
  int top_k = 40;               // keeps the k largest logits; 0 or -1: all
  float top_p = 0.95f;          // keeps the shortest prefix with this share of probability; 1: all
  float min_p = 0.05f;          // drops tokens less probable than this times the first; 0: none
  float repeat_penalty = 1.0f;  // 1: none
  int repeat_last_n = 64;       // how many of the last tokens are penalised; 0: none, -1: all
  float presence_penalty = 0.0f;   // subtracted once from each token that occurred
  float frequency_penalty = 0.0f;  // subtracted for each time that it occurred
  // At temperature 0 penalties act only where the user asked for them, not where a model's
  // generation_config has some.
  bool penalties_when_greedy = false;
  std::uint64_t seed = 0;
};

// Throws Error naming the flag and its range on a setting that is out of it, or is not a number.
void check_settings(const SamplingSettings& settings);

// Where a token stands; together with the seed it determines the random number of its draw.
struct SamplePoint {
  std::uint32_t index = 0;     // of the token in its reply
  std::uint32_t reply = 0;     // number of the reply, regenerated ones counted too
  std::uint32_t sequence = 0;  // of sequences that run side by side
};

// Ids below `vocabulary` that stand for no text: those beyond the tokenizer's pieces and the unused
// ones among them. A model has logits for them, since its tables are often padded.
std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary);

class Sampler {
 public:
  // `vocabulary`: the number of logits; `banned` ids are never drawn. Throws Error on settings out
  // of range and on banned ids outside of the vocabulary.
  Sampler(const SamplingSettings& settings, std::size_t vocabulary, std::span<const Token> banned);

  // How to draw the token behind `context`, prompt and reply, of which the last repeat_last_n are
  // penalised. Valid until the next call. Not thread-safe: a sampler for each sequence.
  SampleRequest request(std::span<const Token> context, const SamplePoint& point);

  const SamplingSettings& settings() const { return settings_; }

 private:
  void count_recent(std::span<const Token> context);

  SamplingSettings settings_;
  std::size_t vocabulary_;
  std::vector<LogitChange> banned_;  // ids ascending, each once
  // Scratch, kept between calls.
  std::vector<Token> recent_;
  std::vector<LogitChange> repeated_;
  std::vector<LogitChange> changes_;
};

}  // namespace leq
