// Compares log-likelihoods of choices with those of transformers (float32, the same checkpoint).
#include "compare/choices.h"

#include <gtest/gtest.h>

#include <array>

#include "small_comparison.h"

namespace leq::test {
namespace {

// Computed with AutoModelForCausalLM and AutoTokenizer: log probabilities of those tokens of
// "context choice" that follow as many tokens as "context" has.
constexpr std::array<std::array<double, 4>, 6> kLogLikelihoods = {
    {{-43.895762, -33.587676, -47.908739, -17.279672},
     {-49.408355, -24.386525, -38.779942, -42.857730},
     {-31.092917, -71.735500, -64.459167, -33.376288},
     {-42.866629, -58.051065, -63.409067, -24.822842},
     {-119.904905, -97.788956, -72.577687, -118.239731},
     {-39.108003, -68.491825, -55.948026, -50.085829}}};
constexpr double kTolerance = 2e-3;  // for sums of about 20 f32 log probabilities

TEST(Choices, LogLikelihoodsAreThoseOfTransformers) {
  const TemporaryFolder folder;
  const CompareJob job = small_job(folder / "report");
  Workbench bench(job);
  const ChoiceTask task = read_choice_file(job.choices.front(), std::ssize(kLogLikelihoods));
  const std::unique_ptr<Model> model = bench.open(parse_candidate("base"));
  Session session(*model, *bench.workers().backend,
                  bench.limits(parse_candidate("base"), model->config(), 512, 512));
  const ChoiceResult result = measure_choices(session, bench.workers().pool, task,
                                              {.tokenizer = model->tokenizer(), .context = 512});
  std::int64_t right = 0;
  for (std::size_t i = 0; i < kLogLikelihoods.size(); ++i) {
    for (std::size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(result.answers[i].log_likelihoods[c], kLogLikelihoods[i][c], kTolerance)
          << i << " " << c;
    }
    right += most_likely(kLogLikelihoods[i]) == task.questions[i].answer ? 1 : 0;
  }
  EXPECT_EQ(result.right, right);
}

}  // namespace
}  // namespace leq::test
