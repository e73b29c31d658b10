#include "eval/multiple_choice.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "eval/perplexity.h"

namespace leq {
namespace {

// Length in Unicode characters, not bytes.
double length_of(std::string_view text) {
  std::int64_t length = 0;
  while (!text.empty()) {
    text.remove_prefix(std::max<std::size_t>(1, utf8_length(text)));
    ++length;
  }
  return static_cast<double>(length);
}

double log_likelihood(Session& session, ThreadPool& pool, const ChoiceTokens& choice) {
  WindowLogits logits(session, choice.tokens, kNoToken);
  const Window window = {0, std::ssize(choice.tokens), choice.scored_from};
  double sum = 0;
  for (const double nll : score_window(logits, pool, window)) sum -= nll;
  return sum;
}

}  // namespace

ChoiceTokens choice_tokens(const Tokenizer& tokenizer, const std::string& context,
                           const std::string& choice, std::int64_t most) {
  const std::size_t last = context.find_last_not_of(" \t\n\r\f\v");
  const std::string stem = context.substr(0, last == context.npos ? 0 : last + 1);
  const std::string rest = context.substr(stem.size()) + " " + choice;
  ChoiceTokens result;
  std::int64_t before = 0;
  if (stem.empty()) {
    const Token first = tokenizer.bos() != kNoToken ? tokenizer.bos() : tokenizer.eos();
    require(first != kNoToken, "an empty context: the tokenizer has neither BOS nor EOS");
    result.tokens = tokenizer.encode(rest, {});
    result.tokens.insert(result.tokens.begin(), first);
    before = 1;
  } else {
    before = std::ssize(encode_text(tokenizer, stem));
    result.tokens = encode_text(tokenizer, stem + rest);
  }
  const std::int64_t count = std::ssize(result.tokens);
  require(before < count, "choice ", printable(choice), ": no token of its own");
  const std::int64_t cut = std::max<std::int64_t>(0, count - most);
  require(before - cut >= 1, "choice ", printable(choice), ": ", count - before,
          " tokens do not fit a context of ", most);
  result.tokens.erase(result.tokens.begin(), result.tokens.begin() + cut);
  result.scored_from = before - cut;
  return result;
}

std::size_t most_likely(std::span<const double> log_likelihoods) {
  const auto best = std::ranges::max_element(log_likelihoods);
  return static_cast<std::size_t>(best - log_likelihoods.begin());
}

std::size_t most_likely_by_length(std::span<const double> log_likelihoods,
                                  std::span<const std::string> choices) {
  std::vector<double> each(log_likelihoods.begin(), log_likelihoods.end());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] /= length_of(choices[i]);
  return most_likely(each);
}

ChoiceResult measure_choices(Session& session, ThreadPool& pool, const ChoiceTask& task,
                             const ChoiceRun& run) {
  ChoiceResult result;
  for (const ChoiceQuestion& question : task.questions) {
    ChoiceAnswer answer;
    for (const std::string& choice : question.choices) {
      const ChoiceTokens tokens =
          choice_tokens(run.tokenizer, question.context, choice, run.context);
      answer.log_likelihoods.push_back(log_likelihood(session, pool, tokens));
    }
    answer.right = most_likely(answer.log_likelihoods) == question.answer;
    answer.right_by_length =
        most_likely_by_length(answer.log_likelihoods, question.choices) == question.answer;
    ++result.questions;
    result.right += answer.right ? 1 : 0;
    result.right_by_length += answer.right_by_length ? 1 : 0;
    result.answers.push_back(std::move(answer));
    if (run.progress) run.progress(result.questions, result.acc());
  }
  return result;
}

}  // namespace leq
