// Drafts of a model's own multi-token prediction head: all drafts of a perfect head are accepted,
// and no head, right or wrong, changes a token.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "quantize/run/quantize.h"
#include "engine/engine.h"
#include "fixed_drafts.h"
#include "reference/mtp_checkpoint.h"
#include "runtime/make_backend.h"
#include "temporary_folder.h"

namespace leq {
namespace {

class MtpDrafts : public testing::TestWithParam<bool> {
 protected:
  void open(bool knows, const std::string& type = "f32") {
    const auto hf = test::write_mtp_checkpoint(folder_.path() / "hf", GetParam(), knows);
    QuantizeOptions options;
    options.type = type;
    options.threads = 1;
    quantize_checkpoint(hf, folder_.path() / "mtp.leq", options);
    model_ = std::make_unique<Model>(folder_.path() / "mtp.leq", LoadOptions{});
    backend_ = make_backend({.device = "cpu", .threads = 2});
  }

  RunLimits limits(std::int64_t context) const {
    RunLimits limits;
    limits.context = context;
    limits.sequences = 3;
    limits.sequence_context = context;
    limits.batch_tokens = 32;
    limits.output_tokens = 16;
    limits.kept_states = 4;
    return resolve_limits(limits, model_->config());
  }

  static EngineOptions plain() { return {.reuse_prefixes = false, .speculate = false}; }
  static EngineOptions with(Session& head, std::int64_t drafts) {
    return {.find_drafts = false, .draft = &head, .plan_drafts = test::fixed_drafts(drafts)};
  }
  std::unique_ptr<Session> trunk(std::int64_t context = 512) const {
    return std::make_unique<Session>(*model_, *backend_, limits(context));
  }
  std::unique_ptr<Session> head(std::int64_t context = 512) const {
    return make_mtp_session(*model_, *backend_, draft_limits(limits(context), *model_->mtp()));
  }

  std::vector<Token> prompt(std::size_t size, std::int32_t from = 3) const {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < size; ++i) {
      tokens.push_back(static_cast<Token>((from + 7 * static_cast<int>(i)) % 90));
    }
    return tokens;
  }

  static void submit(Engine& engine, const std::vector<Token>& prompt, float temperature,
                     std::int64_t tokens, EngineReply& reply) {
    EngineRequest request;
    request.prompt = prompt;
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.stop.max_tokens = tokens;
    request.on_end = [&reply](const EngineReply& ended) { reply = ended; };
    engine.submit(std::move(request));
  }
  static EngineReply reply(Engine& engine, const std::vector<Token>& prompt, float temperature,
                           std::int64_t tokens) {
    EngineReply ended;
    submit(engine, prompt, temperature, tokens, ended);
    while (engine.step()) {
    }
    EXPECT_FALSE(ended.error) << (ended.error ? ended.error->what() : "");
    return ended;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
};

TEST_P(MtpDrafts, AHeadThatKnowsIsAlwaysRight) {
  open(true);
  const auto of_plain = trunk(), of_drafting = trunk(), own = head();
  Engine fresh(*of_plain, model_->tokenizer(), plain());
  Engine engine(*of_drafting, model_->tokenizer(), with(*own, 3));
  for (const float temperature : {0.0f, 1.0f}) {
    const EngineReply want = reply(fresh, prompt(45), temperature, 60);
    EXPECT_EQ(reply(engine, prompt(45), temperature, 60).tokens, want.tokens);
  }
  EXPECT_GT(engine.counts().drafted_tokens, 60);
  EXPECT_EQ(engine.counts().right_drafts, engine.counts().drafted_tokens);
}

TEST_P(MtpDrafts, NoHeadChangesAToken) {
  for (const char* type : {"f32", "int8"}) {
    open(false, type);
    const auto of_plain = trunk();
    Engine fresh(*of_plain, model_->tokenizer(), plain());
    // 512 positions suffice for all requests; with 192, some are evicted and recomputed.
    for (const std::int64_t context : {512, 192}) {
      const auto of_drafting = trunk(context), own = head(context);
      Engine engine(*of_drafting, model_->tokenizer(), with(*own, 2));
      std::vector<EngineReply> replies(5);
      for (int round = 0; round < 2; ++round) {  // the second round reuses prefixes
        for (std::size_t i = 0; i < replies.size(); ++i) {
          submit(engine, prompt(20 + 30 * (i % 3), static_cast<int>(i / 3)),
                 0.3f * static_cast<float>(i % 3), 30, replies[i]);
        }
        while (engine.step()) {
        }
        for (std::size_t i = 0; i < replies.size(); ++i) {
          const EngineReply want = reply(fresh, prompt(20 + 30 * (i % 3), static_cast<int>(i / 3)),
                                         0.3f * static_cast<float>(i % 3), 30);
          EXPECT_FALSE(replies[i].error);
          EXPECT_EQ(replies[i].tokens, want.tokens) << type << ", request " << i;
        }
      }
      EXPECT_GT(engine.counts().drafted_tokens, 0);
      EXPECT_EQ(engine.draft_error(), nullptr);
    }
  }
}

// The prompt is loaded from a file, so the head has not read the hidden states of its tokens.
TEST_P(MtpDrafts, SavedPromptsGoOnAlike) {
  open(true);
  const auto writing = trunk(), reading = trunk(), own = head();
  Engine writer(*writing, model_->tokenizer(), {.speculate = false});
  Engine reader(*reading, model_->tokenizer(), with(*own, 3));
  const EngineReply want = reply(writer, prompt(100), 0, 20);
  ASSERT_TRUE(reader.load_prefix(writer.save_prefix(prompt(100)), "saved"));
  const EngineReply got = reply(reader, prompt(100), 0, 20);
  EXPECT_GE(got.cached_tokens, 99);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_GT(got.accepted_tokens, 0);
}

// The reply is generated without drafts for a long time, while the head reads its hidden states.
TEST_P(MtpDrafts, DraftsMayBeginLate) {
  open(true);
  const auto of_plain = trunk(), of_drafting = trunk(), own = head();
  Engine fresh(*of_plain, model_->tokenizer(), plain());
  EngineOptions options = with(*own, 0);
  options.plan_drafts = [steps = 0](std::span<const DraftOffer> offers, const StepCosts& costs,
                                    const StepCosts& draft) mutable {
    return test::fixed_drafts(++steps > 150 ? 3 : 0)(offers, costs, draft);
  };
  Engine engine(*of_drafting, model_->tokenizer(), options);
  const EngineReply got = reply(engine, prompt(45), 0, 200);
  EXPECT_EQ(got.tokens, reply(fresh, prompt(45), 0, 200).tokens);
  EXPECT_GT(got.accepted_tokens, 30);
  EXPECT_EQ(got.accepted_tokens, got.draft_tokens);
}

INSTANTIATE_TEST_SUITE_P(Layers, MtpDrafts, testing::Bool(),
                         [](const auto& item) { return item.param ? "hybrid" : "dense"; });

}  // namespace
}  // namespace leq
