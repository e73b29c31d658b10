// Reads multiple-choice questions from the published JSONL files of HellaSwag, PIQA, ARC and MMLU,
// or in a plain form; prompts are those of lm-evaluation-harness (its task definitions).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct ChoiceQuestion {
  std::string context;               // the prompt
  std::vector<std::string> choices;  // acc_norm divides by the lengths of the choices
  std::size_t answer = 0;            // index of the correct choice
};

struct ChoiceTask {
  std::string name;  // file name without extension: "ARC-Challenge-Test"
  std::string form;  // "hellaswag", "piqa", "arc", "mmlu", "plain"
  std::vector<ChoiceQuestion> questions;
};

// Parses one line; its keys determine its form.
//   hellaswag  ctx_a, ctx_b, activity_label, endings, label
//   piqa       goal, sol1, sol2, label
//   arc        question, choices {text, label}, answerKey; or question {stem, choices [...]}
//   mmlu       question, choices [A, B, C, D], answer (a number or a letter), subject
//   plain      context, choices [...], label
// Throws Error naming `source` if no form fits, the answer is missing, or it is not one of the
// choices.
ChoiceQuestion choice_question(const Json& line, std::string_view source);
std::string choice_form(const Json& line, std::string_view source);

// Reads the first `limit` questions; 0: all. Throws Error naming file and line.
ChoiceTask read_choice_file(const std::filesystem::path& path, std::int64_t limit = 0);

// Multiple choice by log-likelihood, scored as in lm-evaluation-harness: each choice is appended to
// the context, and the model's answer is the choice with the highest log probability.

// A context and one choice as tokens.
struct ChoiceTokens {
  std::vector<Token> tokens;     // tokens of context and choice
  std::int64_t scored_from = 0;  // index of the choice's first token
};

// Context and choice are separated by a space; white space at the end of the context is moved to
// the choice. The whole text is tokenized; if the context alone has n tokens, the tokens after the
// first n belong to the choice. An empty context becomes the tokenizer's BOS (or EOS).
// More than `most` tokens are truncated at the start. Throws Error if the choice has no token.
ChoiceTokens choice_tokens(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& choice, std::int64_t most);

// acc: index of the largest log-likelihood, the first on ties. acc_norm: index of the largest
// quotient of log-likelihood and the choice's length in Unicode characters.
std::size_t most_likely(std::span<const double> log_likelihoods);
std::size_t most_likely_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices);

// Confidence intervals of proportions.

struct Interval {
  double low = 0;
  double high = 0;
};

// The inverse of the normal distribution function, 0 < p < 1; by bisection of erfc.
double normal_quantile(double p);

// Wilson's interval of a proportion (Wilson 1927): within [0, 1], never empty. `trials` > 0.
Interval wilson_interval(std::int64_t successes, std::int64_t trials, double confidence = 0.95);

struct ChoiceAnswer {
  std::vector<double> log_likelihoods;  // per choice, nats
  bool right = false;                   // correct by acc
  bool right_by_length = false;         // correct by acc_norm
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
  std::int64_t context = 0;  // limit on context and choice; at most the session's context
  std::function<void(std::int64_t done, double acc)> progress = {};
};

// Throws Error naming the question if a choice cannot be scored.
ChoiceResult measure_choices(Session& session, ThreadPool& pool, const ChoiceTask& task,
                             const ChoiceRun& run);

}  // namespace leq
