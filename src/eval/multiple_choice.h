// Multiple choice by log-likelihood, as lm-evaluation-harness scores it: each choice is appended to
// the context, and the one to which the model gives the highest log probability is its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "eval/choice_file.h"
#include "eval/statistics.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// A context and one choice as tokens.
struct ChoiceTokens {
  std::vector<Token> tokens;     // of both
  std::int64_t scored_from = 0;  // the first of the choice's tokens
};

// A space stands between the two; white space at the end of the context goes to the choice. The
// choice's tokens are those of the whole text that follow as many as the context alone has. A
// context without tokens becomes the tokenizer's BOS, or EOS where it has none. More than `most`
// tokens lose their beginning. Throws Error where the choice has no token of its own.
ChoiceTokens choice_tokens(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& choice, std::int64_t most);

// The index of the largest log-likelihood, the first of equals: acc; and of the largest per
// character (Unicode) of the choice: acc_norm.
std::size_t most_likely(std::span<const double> log_likelihoods);
std::size_t most_likely_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices);

struct ChoiceAnswer {
  std::vector<double> log_likelihoods;  // of the choices, nats
  bool right = false;                   // acc
  bool right_by_length = false;         // acc_norm
};

struct ChoiceResult {
  std::int64_t questions = 0, right = 0, right_by_length = 0;
  std::vector<ChoiceAnswer> answers;
  double acc() const { return static_cast<double>(right) / static_cast<double>(questions); }
  double acc_norm() const {
    return static_cast<double>(right_by_length) / static_cast<double>(questions);
  }
  Interval acc_interval() const { return wilson_interval(right, questions); }
  Interval acc_norm_interval() const { return wilson_interval(right_by_length, questions); }
};

struct ChoiceRun {
  const Tokenizer& tokenizer;
  std::int64_t context = 0;  // the longest context and choice together, at most the session's
  std::function<void(std::int64_t done, double acc)> progress = {};
};

// Throws Error naming the question where a choice cannot be scored.
ChoiceResult measure_choices(Session& session, ThreadPool& pool, const ChoiceTask& task,
                             const ChoiceRun& run);

}  // namespace leq
