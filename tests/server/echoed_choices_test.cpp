// Multiple choice as lm-evaluation-harness requests it: the reply echoes a prompt of ids with the
// probabilities, which are compared with the log-likelihoods of leq-perplexity --choices.
// lm_eval_client.py does the same with the harness itself.
#include <gtest/gtest.h>

#include "eval/multiple_choice.h"
#include "eval/perplexity.h"
#include "served_model.h"

namespace leq::test {
namespace {

constexpr std::int64_t kQuestions = 5, kContext = 512;
constexpr double kTolerance = 1e-3;  // for about 20 log probabilities with f32's digits

double echoed_log_likelihood(const ServedModel& served, const ChoiceTokens& choice) {
  const auto answer = served.post("/v1/completions", Json{{"prompt", choice.tokens},
                                                          {"echo", true},
                                                          {"logprobs", 1},
                                                          {"max_tokens", 1},
                                                          {"temperature", 0}});
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json& values = answer.json["choices"][0]["logprobs"]["token_logprobs"];
  EXPECT_EQ(values.size(), choice.tokens.size() + 1);  // and one generated token
  double sum = 0;
  for (std::size_t i = static_cast<std::size_t>(choice.scored_from); i < choice.tokens.size();
       ++i) {
    sum += values[i].get<double>();
  }
  return sum;
}

TEST(EchoedChoices, HaveTheLogLikelihoodsOfMultipleChoice) {
  const ChoiceTask task = read_choice_file(
      std::string(LEQ_SOURCE_DIR) + "/examples/storyteller/choices.jsonl", kQuestions);
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  RunLimits limits = story_limits(1);
  limits.output_tokens = kOutputRows;
  Session session(story_model(), *backend, limits);
  ThreadPool pool(2);
  const Tokenizer& tokenizer = story_model().tokenizer();
  const ChoiceResult result =
      measure_choices(session, pool, task, {.tokenizer = tokenizer, .context = kContext});
  const ServedModel served(2);
  for (std::size_t q = 0; q < task.questions.size(); ++q) {
    const ChoiceQuestion& question = task.questions[q];
    for (std::size_t c = 0; c < question.choices.size(); ++c) {
      const ChoiceTokens tokens =
          choice_tokens(tokenizer, question.context, question.choices[c], kContext);
      EXPECT_NEAR(echoed_log_likelihood(served, tokens), result.answers[q].log_likelihoods[c],
                  kTolerance)
          << q << " " << c;
    }
  }
}

}  // namespace
}  // namespace leq::test
