// Multiple choice as lm-evaluation-harness requests it: the reply echoes a prompt of ids with the
// log probabilities, which are compared with those of a forward pass. lm_eval_client.py does the
// same with the harness itself.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "eval/perplexity.h"
#include "served_model.h"

namespace leq::test {
namespace {

constexpr std::size_t kQuestions = 5;
constexpr double kTolerance = 1e-4;  // of a log probability with f32's digits

TEST(EchoedChoices, HaveTheLogProbabilitiesOfAForwardPass) {
  const std::string path = std::string(LEQ_SOURCE_DIR) + "/examples/storyteller/choices.jsonl";
  const std::string file = read_file(path, 1 << 20);
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  RunLimits limits = story_limits(1);
  limits.output_tokens = kOutputRows;
  Session session(story_model(), *backend, limits);
  ThreadPool pool(2);
  const ServedModel served(2);
  const auto lines = split(file, "\n");
  for (const std::string_view line : std::span(lines).first(kQuestions)) {
    const Json question = parse_json(line, path);
    for (const Json& choice : question["choices"]) {
      const std::vector<Token> tokens =
          encode_text(story_model().tokenizer(), question["context"].text() + " " + choice.text());
      const PerplexityRun run = {.tokens = tokens, .windows = {}};
      WindowLogits logits(session, run);
      const std::vector<double> expected =
          score_window(logits, pool, {0, std::ssize(tokens), /*scored_from=*/1});
      const auto answer = served.post("/v1/completions", Json{{"prompt", tokens},
                                                              {"echo", true},
                                                              {"logprobs", 1},
                                                              {"max_tokens", 1},
                                                              {"temperature", 0}});
      ASSERT_EQ(answer.status, 200) << answer.body;
      const Json& values = answer.json["choices"][0]["logprobs"]["token_logprobs"];
      ASSERT_EQ(values.size(), tokens.size() + 1);  // and one generated token
      for (std::size_t i = 1; i < tokens.size(); ++i) {
        EXPECT_NEAR(values[i].get<double>(), -expected[i - 1], kTolerance) << choice.text();
      }
    }
  }
}

}  // namespace
}  // namespace leq::test
