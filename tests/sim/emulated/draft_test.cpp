// Two models on one emulated device: a draft model must not change replies there either.
#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "fixed_drafts.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

TEST(EmulatedDrafts, ChangeNoReply) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const Model coarse(test::quantized(folder, "int4-g64"), {});
  const auto backend = make_backend({.device = "sim", .threads = 1});
  RunLimits limits;
  limits.context = 128;
  limits.sequences = 2;
  limits.batch_tokens = 32;
  limits.output_tokens = 8;
  limits = resolve_limits(limits, model.config());
  const auto replies_with = [&](Session* draft, EngineCounts& counts) {
    Session session(model, *backend, limits);
    Engine engine(
        session, model.tokenizer(),
        {.speculate = draft != nullptr, .draft = draft, .plan_drafts = test::fixed_drafts(2)});
    std::vector<std::vector<Token>> replies(2);
    for (std::size_t i = 0; i < 2; ++i) {
      EngineRequest request;
      request.prompt = {1, 300, 301, static_cast<Token>(302 + i)};
      request.sampling.temperature = i == 0 ? 0.0f : 0.7f;
      request.stop.max_tokens = 8;
      request.on_end = [&replies, i](const EngineReply& reply) { replies[i] = reply.tokens; };
      engine.submit(std::move(request));
    }
    while (engine.step()) {
    }
    counts = engine.counts();
    return replies;
  };
  EngineCounts plain, drafted;
  const auto expected = replies_with(nullptr, plain);
  Session draft(coarse, *backend, draft_limits(limits, coarse.config()));
  EXPECT_EQ(replies_with(&draft, drafted), expected);
  EXPECT_EQ(expected[0].size(), 8u);
  EXPECT_EQ(plain.drafted_tokens, 0);
  EXPECT_GT(drafted.drafted_tokens, 0);
}

}  // namespace
}  // namespace leq
