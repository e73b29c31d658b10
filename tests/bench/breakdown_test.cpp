#include "tools/bench/parts/speed.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "tools/bench/parts/synthetic.h"

namespace leq {
namespace {

constexpr std::int64_t kLayers = 2;

class BreakdownTest : public ::testing::Test {
 protected:
  BreakdownTest()
      : pool_(1),
        model_(parse_synthetic("synthetic:llama-110m:int8:layers=2"), 256, pool_),
        backend_(make_cpu_backend({1, Isa::portable})) {}

  Breakdown divide(const BenchTest& test, int runs = 1) {
    RunLimits limits;
    limits.context = 256;
    limits.sequences = test.sequences;
    limits.output_tokens = test.sequences;
    const RunLimits resolved = resolve_limits(limits, model_.config());
    const auto find = [&](std::string_view name) { return model_.find(name); };
    Session session(model_.config(),
                    load_weights(find, model_.name(), model_.config(), *backend_, resolved,
                                 place_of(model_.config(), 0, 1)),
                    model_.weight_bytes(), *backend_, resolved);
    weight_bytes_ = session.weights().bytes_per_token();
    int reported = 0;
    Breakdown found = break_down(session, test, runs, [&](int done) { reported = done; });
    EXPECT_EQ(reported, runs);
    return found;
  }

  ThreadPool pool_;
  SyntheticModel model_;
  std::unique_ptr<Backend> backend_;
  std::uint64_t weight_bytes_ = 0;
};

TEST_F(BreakdownTest, PartsAreTheWholeStep) {
  const Breakdown found = divide({0, 3, 64});
  double sum = 0;
  for (const PartTimes& times : found.times.parts) sum += times.seconds;
  EXPECT_NEAR(sum, found.step_seconds, 0.02 * found.step_seconds);
  EXPECT_LE(sum, found.step_seconds);
  EXPECT_GT(found.plain_seconds, 0);
  for (const StepPart each : {StepPart::load, StepPart::quant, StepPart::gemm, StepPart::attention,
                              StepPart::sync, StepPart::sample}) {
    EXPECT_GT(found.times[each].seconds, 0) << kStepPartNames[static_cast<std::size_t>(each)];
  }
  EXPECT_EQ(found.times[StepPart::comm].seconds, 0);
}

TEST_F(BreakdownTest, OperationsAndBytesAreThoseOfOneStep) {
  const Breakdown found = divide({0, 3, 64}, 2);
  EXPECT_EQ(found.steps, 3);
  EXPECT_EQ(found.times[StepPart::load].operations, 1);
  EXPECT_EQ(found.times[StepPart::quant].operations, 2 * kLayers + 1);
  EXPECT_EQ(found.times[StepPart::gemm].operations, 4 * kLayers + 1);
  EXPECT_EQ(found.times[StepPart::attention].operations, 2 * kLayers);
  EXPECT_EQ(found.times[StepPart::sample].operations, 1);
  EXPECT_EQ(found.times[StepPart::gemm].bytes, weight_bytes_);
  // A row of the embedding has 768 int8 codes, 24 sums of 16 bits, and one f32 scale.
  EXPECT_EQ(found.times[StepPart::load].bytes, 768u + 24 * 2 + 4);
  // A step reads qkv in f32, and f16 keys and values of 65, 66 and 67 positions, on average 66.
  const std::uint64_t qkv = 3 * 768 * 4, position = 2 * 768 * 2;
  EXPECT_EQ(found.times[StepPart::attention].bytes, kLayers * (qkv + 66 * position));
}

TEST_F(BreakdownTest, APromptIsOneStep) {
  const Breakdown found = divide({64, 0, 0});
  EXPECT_EQ(found.steps, 1);
  EXPECT_EQ(found.times[StepPart::gemm].operations, 4 * kLayers + 1);
}

TEST_F(BreakdownTest, SeveralSequencesShareAStep) {
  const Breakdown found = divide({0, 2, 64, 3});
  EXPECT_EQ(found.steps, 2);
  EXPECT_EQ(found.times[StepPart::gemm].bytes, weight_bytes_);
  EXPECT_GT(found.times[StepPart::attention].bytes, 3u * 64 * 2 * 768 * 2 * kLayers);
}

TEST_F(BreakdownTest, MixedTestsAreRefused) { EXPECT_THROW(divide({8, 2, 0}), Error); }

}  // namespace
}  // namespace leq
