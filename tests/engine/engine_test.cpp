// Compares the engine's replies with those of a session that runs one request at a time: tokens
// must be equal regardless of concurrent requests, chunks, reused pages, evictions with
// recomputation, and drafts.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "fixed_drafts.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

// `fixed` is the number of draft tokens; 0: as many as the planner considers useful.
DraftPlanner planner(std::int64_t fixed) {
  return fixed > 0 ? test::fixed_drafts(fixed) : DraftPlanner(plan_draft_tokens);
}

struct Wanted {
  std::vector<Token> prompt;
  SamplingSettings sampling;
  std::int64_t tokens = 0;
  std::uint32_t reply = 0, choice = 0;
};

std::unique_ptr<Session> session_of(const Model& model, Backend& backend, RunLimits limits) {
  return std::make_unique<Session>(model, backend, resolve_limits(limits, model.config()));
}

struct EngineCase {
  const char* model;
  KvType kv;
};

class Engines : public testing::TestWithParam<EngineCase> {
 protected:
  static std::int64_t below(Random& random, std::int64_t n) {
    return static_cast<std::int64_t>(random.uniform() * static_cast<double>(n)) % n;
  }

  RunLimits limits(std::int64_t context, int sequences, std::int64_t batch) const {
    RunLimits limits;
    limits.context = context;
    limits.sequences = sequences;
    limits.sequence_context = context;
    limits.batch_tokens = batch;
    limits.output_tokens = std::max<std::int64_t>(sequences, batch / 2);
    limits.key_type = limits.value_type = GetParam().kv;
    return limits;
  }

  // Creates prompts of a growing chat, similar prompts and unrelated ones; some prompts repeat
  // themselves, so that drafts can be found.
  std::vector<Wanted> requests(const Model& model, std::uint64_t seed, int count) const {
    Random random(seed);
    const std::int64_t vocab = model.config().vocab, first = std::min<std::int64_t>(300, vocab / 2);
    const std::string text =
        "Once upon a time there was a little cat. The cat liked to play. Once upon a time there "
        "was ";
    const std::vector<Token> shared =
        model.tokenizer().encode(text + text + text, {.add_bos = model.tokenizer().add_bos()});
    std::vector<Wanted> all;
    for (int i = 0; i < count; ++i) {
      Wanted wanted;
      const auto size = static_cast<std::ptrdiff_t>(1 + below(random, std::ssize(shared)));
      wanted.prompt.assign(shared.begin(), shared.begin() + size);
      for (std::int64_t more = below(random, 8); more > 0; --more) {
        wanted.prompt.push_back(static_cast<Token>(first + below(random, vocab - first)));
      }
      wanted.sampling.temperature = i % 3 == 0 ? 0.0f : 0.2f * static_cast<float>(i % 5);
      wanted.sampling.repeat_penalty = i % 4 == 3 ? 1.1f : 1.0f;
      wanted.sampling.dry_multiplier = i % 4 == 1 ? 0.8f : 0.0f;
      wanted.sampling.xtc_probability = i % 5 == 2 ? 0.5f : 0.0f;
      wanted.sampling.typical_p = i % 5 == 3 ? 0.9f : 1.0f;
      wanted.sampling.mirostat = i % 5 == 4 ? 2 : 0;
      wanted.sampling.seed = static_cast<std::uint64_t>(i % 3);
      wanted.tokens = 1 + below(random, 120);
      wanted.reply = static_cast<std::uint32_t>(i % 2);
      all.push_back(wanted);
    }
    return all;
  }

  // The context of a sequence.
  static std::int64_t longest(const Model& model) {
    return std::min<std::int64_t>(320, model.config().context);
  }

  // Generates one reply after another token by token, each from an empty cache, without an engine.
  static std::vector<std::vector<Token>> alone(const Model& model, Backend& backend,
                                               RunLimits limits,
                                               const std::vector<Wanted>& requests) {
    limits.sequences = 1;
    limits.output_tokens = 1;
    std::vector<std::vector<Token>> replies;
    const auto session = session_of(model, backend, limits);
    const auto vocabulary = static_cast<std::size_t>(model.config().vocab);
    HostSampler host;
    for (const Wanted& wanted : requests) {
      session->state().drop(0);
      StopRules stop;
      stop.max_tokens = wanted.tokens;
      const Sampler sampler(wanted.sampling, vocabulary,
                            ids_without_token(model.tokenizer(), vocabulary), model.tokenizer());
      Reply reply(model.tokenizer(), wanted.prompt, sampler,
                  {.stop = stop, .context = limits.context, .number = wanted.reply});
      for (std::size_t fed = 0; reply.stopped() == StopReason::none;) {
        const auto rest = reply.context().subspan(fed);
        fed += rest.size();
        reply.take(host.draw(session->feed(0, rest), reply.request()));
      }
      replies.emplace_back(reply.tokens().begin(), reply.tokens().end());
    }
    return replies;
  }

  static RequestId submit(Engine& engine, const Wanted& wanted, EngineReply& reply) {
    EngineRequest request;
    request.prompt = wanted.prompt;
    request.sampling = wanted.sampling;
    request.stop.max_tokens = wanted.tokens;
    request.reply = wanted.reply;
    request.on_end = [&reply](const EngineReply& ended) { reply = ended; };
    return engine.submit(std::move(request));
  }
};

// Combines neighbours, chunks, arrival times, prefixes, evictions, draft tokens and temperatures.
TEST_P(Engines, RepliesAreThoseOfARequestAlone) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const std::vector<Wanted> wanted = requests(model, 1, 33);
  const std::int64_t one = longest(model);
  const auto expected = alone(model, *backend, limits(one, 1, 512), wanted);
  struct Mix {
    std::int64_t context;
    int sequences;
    std::int64_t batch;
    bool reuse, speculate;
    std::int64_t fixed;  // draft tokens; 0: as many as are worth it on this machine
  };
  const std::vector<Mix> mixes = {
      {8192, 33, 512, false, false, 0}, {8192, 33, 512, true, true, 4},
      {one, 1, 7, true, true, 6},       {one, 6, 64, true, true, 0},
      {one, 3, 33, false, true, 3},     {2 * one, 8, 40, true, false, 0}};
  EngineCounts all;
  for (const Mix& mix : mixes) {
    RunLimits given = limits(mix.context, mix.sequences, mix.batch);
    given.sequence_context = one;
    const auto session = session_of(model, *backend, given);
    Engine engine(*session, model.tokenizer(),
                  {.reuse_prefixes = mix.reuse,
                   .speculate = mix.speculate,
                   .plan_drafts = planner(mix.fixed)});
    std::vector<EngineReply> replies(wanted.size());
    Random random(static_cast<std::uint64_t>(mix.batch));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      submit(engine, wanted[i], replies[i]);
      for (std::int64_t steps = below(random, 6); steps > 0; --steps) engine.step();
    }
    while (engine.step()) {
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(replies[i].tokens, expected[i])
          << "request " << i << " of " << mix.context << ", " << mix.sequences << ", " << mix.batch;
    }
    const EngineCounts& counts = engine.counts();
    // A hybrid's prefix is only reused where a state was kept, so some mixes reuse nothing.
    if (!mix.reuse || model.config().delta_net() == nullptr) {
      EXPECT_EQ(counts.cached_tokens > 0, mix.reuse);
    }
    all.cached_tokens += counts.cached_tokens;
    if (mix.fixed > 0) {
      EXPECT_GT(counts.accepted_tokens, 0);
    }
    EXPECT_TRUE(mix.speculate || counts.draft_tokens == 0);
    all.evictions += counts.evictions;
    // Only pages that later requests may reuse are still referenced.
    EXPECT_EQ(session->cache().free_pages() + engine.prefixes().idle_pages(),
              session->cache().page_count());
    EXPECT_EQ(engine.running() + engine.waiting(), 0u);
  }
  EXPECT_GT(all.evictions, 0);
  EXPECT_GT(all.cached_tokens, 0);
}

// Uses a draft model: one identical to the model always drafts the right tokens; another model with
// the same vocabulary also drafts wrong tokens.
TEST_P(Engines, DraftsChangeNoReply) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam().model);
  const Model model(test::quantized(folder, "int8"), {});
  const Model coarse(test::quantized(folder, "int2-g64"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const std::vector<Wanted> wanted = requests(model, 1, 33);
  const std::int64_t one = longest(model);
  const auto expected = alone(model, *backend, limits(one, 1, 512), wanted);
  struct Mix {
    std::int64_t context;
    int sequences;
    std::int64_t batch;
    std::int64_t fixed;  // draft tokens; 0: as many as are worth it
    const Model* draft;
  };
  const std::vector<Mix> mixes = {{8192, 33, 512, 3, &model},   {one, 1, 7, 4, &model},
                                  {one, 6, 64, 2, &model},      {4096, 8, 512, 0, &coarse},
                                  {2 * one, 6, 64, 5, &coarse}, {one, 3, 33, 16, &coarse}};
  EngineCounts all;
  for (const Mix& mix : mixes) {
    RunLimits given = limits(mix.context, mix.sequences, mix.batch);
    given.sequence_context = one;
    const auto session = session_of(model, *backend, given);
    Session draft(*mix.draft, *backend, draft_limits(session->limits(), mix.draft->config()));
    Engine engine(*session, model.tokenizer(),
                  {.draft = &draft, .plan_drafts = planner(mix.fixed)});
    std::vector<EngineReply> replies(wanted.size());
    Random random(static_cast<std::uint64_t>(mix.batch));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      submit(engine, wanted[i], replies[i]);
      for (std::int64_t steps = below(random, 6); steps > 0; --steps) engine.step();
    }
    while (engine.step()) {
    }
    const EngineCounts& counts = engine.counts();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(replies[i].tokens, expected[i])
          << "request " << i << " of " << mix.context << ", " << mix.sequences << ", " << mix.batch;
    }
    EXPECT_EQ(engine.draft_error(), nullptr);
    if (mix.fixed > 0) {
      EXPECT_GT(counts.drafted_tokens, 0);
    }
    if (mix.draft == &model) {
      EXPECT_EQ(counts.right_drafts, counts.drafted_tokens);
    } else {
      all.drafted_tokens += counts.drafted_tokens;
      all.right_drafts += counts.right_drafts;
    }
    all.evictions += counts.evictions;
    // Only pages that later requests may reuse are still referenced.
    EXPECT_EQ(session->cache().free_pages() + engine.prefixes().idle_pages(),
              session->cache().page_count());
    for (int sequence = 0; sequence < mix.sequences; ++sequence) {
      EXPECT_EQ(draft.cache().length(sequence), 0);
    }
  }
  EXPECT_GT(all.evictions, 0);
  EXPECT_GT(all.right_drafts, 0);
  EXPECT_LT(all.right_drafts, all.drafted_tokens);
}

INSTANTIATE_TEST_SUITE_P(
    Kv, Engines,
    testing::Values(EngineCase{"storyteller", KvType::f16}, EngineCase{"storyteller", KvType::int8},
                    EngineCase{"storyteller", KvType::int4},
                    EngineCase{"storyteller", KvType::simq4},
                    EngineCase{"storyteller", KvType::simq2},
                    EngineCase{"qwen35-tiny", KvType::f16}, EngineCase{"qwen35-tiny", KvType::int8},
                    EngineCase{"qwen3moe-tiny", KvType::f16},
                    EngineCase{"qwen3moe-tiny", KvType::simq4}, EngineCase{"gemma-3", KvType::f16},
                    EngineCase{"gemma-3", KvType::simq4}, EngineCase{"gpt-oss", KvType::f16},
                    EngineCase{"gpt-oss", KvType::int4}, EngineCase{"smollm3", KvType::int8},
                    EngineCase{"granite", KvType::simq8}, EngineCase{"phi-3", KvType::simq2}));

class EngineRequests : public Engines {};
INSTANTIATE_TEST_SUITE_P(Kv, EngineRequests,
                         testing::Values(EngineCase{"storyteller", KvType::f16}));

TEST_P(EngineRequests, ThePromptIsFedOnce) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto session = session_of(model, *backend, limits(1024, 2, 512));
  Engine engine(*session, model.tokenizer(), {});
  Wanted wanted = requests(model, 2, 1)[0];
  wanted.prompt.resize(150, 301);
  wanted.tokens = 10;
  EngineReply first, second, longer;
  submit(engine, wanted, first);
  while (engine.step()) {
  }
  submit(engine, wanted, second);
  while (engine.step()) {
  }
  EXPECT_EQ(first.fed_tokens, 150);
  EXPECT_EQ(second.cached_tokens, 149);
  EXPECT_EQ(second.fed_tokens, 1);
  EXPECT_EQ(first.tokens, second.tokens);
  // The prompt of the next turn is this prompt, its reply and a question.
  wanted.prompt.insert(wanted.prompt.end(), second.tokens.begin(), second.tokens.end());
  wanted.prompt.push_back(320);
  submit(engine, wanted, longer);
  while (engine.step()) {
  }
  EXPECT_GE(longer.cached_tokens, 158);  // all but the last drawn token, which was not fed
  EXPECT_LE(longer.fed_tokens, 3);
}

TEST_P(EngineRequests, EndsAreTold) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 2});
  const auto session = session_of(model, *backend, limits(256, 2, 64));
  Engine engine(*session, model.tokenizer(), {});
  const auto wanted = requests(model, 3, 4);
  std::vector<EngineReply> replies(4);
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < 4; ++i) {
    Wanted one = wanted[i];
    one.prompt.resize(20, 301);
    one.tokens = i == 3 ? 0 : 200;
    ids.push_back(submit(engine, one, replies[i]));
  }
  for (int i = 0; i < 5; ++i) engine.step();
  engine.cancel(ids[0]);
  engine.cancel(ids[2]);  // it is still queued
  while (engine.step()) {
  }
  EXPECT_EQ(replies[0].stopped, StopReason::interrupted);
  EXPECT_GT(replies[0].tokens.size(), 0u);
  EXPECT_EQ(replies[2].stopped, StopReason::interrupted);
  EXPECT_TRUE(replies[2].tokens.empty());
  EXPECT_EQ(replies[3].stopped, StopReason::token_limit);
  EXPECT_TRUE(replies[1].stopped == StopReason::token_limit ||
              replies[1].stopped == StopReason::end_token);

  EngineRequest hasty;
  hasty.prompt = wanted[0].prompt;
  hasty.seconds = 0;
  EngineReply reply;
  hasty.on_end = [&](const EngineReply& ended) { reply = ended; };
  engine.submit(hasty);
  while (engine.step()) {
  }
  EXPECT_EQ(reply.stopped, StopReason::interrupted);
}

// A later request must not reuse what a failed step computed.
TEST_P(EngineRequests, AFailedStepLeavesNothingInTheCache) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(256, 2, 128));
  const std::string text = "Once upon a time there was a cat. Once upon a time";
  EngineRequest request;
  request.prompt = model.tokenizer().encode(text, {.add_bos = true});
  request.sampling.temperature = 0;
  request.stop.max_tokens = 40;
  int steps = 0, failing = 0;
  EngineOptions options = {.plan_drafts = test::fixed_drafts(4)};
  options.check_step = [&] { require(++steps != failing, "the device failed"); };
  Engine engine(*session, model.tokenizer(), options);
  EngineReply reply;
  request.on_end = [&](const EngineReply& ended) { reply = ended; };
  const auto run = [&](int until) {
    steps = 0;
    failing = until;
    engine.submit(request);
    while (engine.step()) {
    }
  };
  run(1);
  EXPECT_EQ(reply.stopped, StopReason::failed);
  EXPECT_TRUE(reply.tokens.empty());
  run(6);
  EXPECT_EQ(reply.stopped, StopReason::failed);
  EXPECT_EQ(reply.cached_tokens, 0);
  EXPECT_GT(reply.draft_tokens, 0);
  const std::vector<Token> part = reply.tokens;
  run(0);
  EXPECT_EQ(reply.stopped, StopReason::token_limit);
  EXPECT_TRUE(std::ranges::equal(part, std::span(reply.tokens).first(part.size())));
}

// A mistake in counting pages must not end the engine.
TEST_P(EngineRequests, ARequestWithTooFewPagesFailsAlone) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(256, 2, 64));
  Engine engine(*session, model.tokenizer(), {});
  session->cache().append(1, 256);  // pages that the engine does not know; one is left
  std::vector<EngineReply> replies(3);
  const auto run = [&](std::size_t i, std::size_t length) {
    const std::vector<Token> prompt(length, 301 + static_cast<Token>(i));  // shares no page
    submit(engine, {.prompt = prompt, .tokens = 4}, replies[i]);
  };
  run(0, 100);
  run(1, 20);
  while (engine.step()) {
  }
  session->cache().clear(1);
  run(2, 100);
  while (engine.step()) {
  }
  EXPECT_EQ(replies[0].stopped, StopReason::failed);
  ASSERT_TRUE(replies[0].error);
  EXPECT_EQ(replies[0].error->kind(), ErrorKind::internal);
  EXPECT_FALSE(replies[1].error);
  EXPECT_EQ(replies[1].tokens.size(), 4u);
  EXPECT_FALSE(replies[2].error);
}

TEST_P(EngineRequests, WhatCannotBeWrittenIsRefusedAtOnce) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(128, 2, 64));
  Engine engine(*session, model.tokenizer(), {});
  EXPECT_THROW(engine.submit({}), Error);
  EXPECT_THROW(engine.submit({.prompt = {99999999}}), Error);
  EXPECT_THROW(engine.submit({.prompt = std::vector<Token>(128, 5)}), Error);
  SamplingSettings settings;
  settings.top_p = 7;
  EXPECT_THROW(engine.submit({.prompt = {5}, .sampling = settings}), Error);
  EXPECT_FALSE(engine.step());
}

// Continuous batching: a request that comes while others are written joins them in the next step.
TEST_P(EngineRequests, ALaterRequestJoinsTheBatch) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(512, 3, 64));
  Engine engine(*session, model.tokenizer(), {.speculate = false});
  std::vector<EngineReply> replies(4);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<Token> prompt(10, 301 + static_cast<Token>(i));
    submit(engine, {.prompt = prompt, .tokens = 40}, replies[i]);
    engine.step();
    EXPECT_EQ(engine.running(), std::min<std::size_t>(i + 1, 3));  // there are three sequences
  }
  EXPECT_EQ(engine.waiting(), 1u);
  while (engine.step()) {
  }
  for (const EngineReply& reply : replies) EXPECT_EQ(reply.tokens.size(), 40u);
}

// Five pages for two texts of four: the second is evicted once, and its counts are those of its
// first start.
TEST_P(EngineRequests, AnEvictedRequestKeepsItsCounts) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(256, 2, 64));
  Engine engine(*session, model.tokenizer(), {.speculate = false});
  std::vector<EngineReply> replies(2);
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> told(2);
  for (std::size_t i = 0; i < 2; ++i) {
    EngineRequest request;
    for (Token k = 0; k < 100; ++k) {
      request.prompt.push_back(300 + 50 * static_cast<Token>(i) + k % 40);
    }
    request.sampling.temperature = 0;
    request.stop.max_tokens = 100;
    request.on_prompt = [&, i](std::int64_t fed, std::int64_t all) {
      told[i].push_back({fed, all});
    };
    request.on_end = [&, i](const EngineReply& reply) { replies[i] = reply; };
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  EXPECT_EQ(replies[0].evictions + replies[1].evictions, 1);
  EXPECT_EQ(engine.counts().evictions, 1);
  EXPECT_GT(engine.counts().cached_tokens, 0) << "the evicted text was found again";
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(replies[i].tokens.size(), 100u);
    EXPECT_EQ(replies[i].cached_tokens, 0) << "of its prompt nothing was known";
    EXPECT_EQ(replies[i].decoded_tokens, 99);
    EXPECT_EQ(std::ranges::count(told[i], std::pair<std::int64_t, std::int64_t>(0, 100)), 1);
    for (const auto& [fed, all] : told[i]) EXPECT_EQ(all, 100);
  }
}

// With a slowdown of 1 a prompt gets the fewest tokens of a step, beside which every writer gets
// its token.
TEST_P(EngineRequests, APromptTakesNoMoreOfAStepThanItMay) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(1024, 3, 512));
  Engine engine(*session, model.tokenizer(), {.speculate = false, .prompt_slowdown = 1});
  std::int64_t written = 0;
  EngineRequest writer;
  writer.prompt = std::vector<Token>(20, 301);
  writer.stop.max_tokens = 100;
  writer.on_tokens = [&](std::span<const Token> tokens) { written += std::ssize(tokens); };
  engine.submit(std::move(writer));
  for (int i = 0; i < 5; ++i) engine.step();
  std::vector<std::int64_t> told;
  EngineRequest reader;
  reader.prompt = std::vector<Token>(200, 302);
  reader.stop.max_tokens = 1;
  reader.on_prompt = [&](std::int64_t fed, std::int64_t) { told.push_back(fed); };
  engine.submit(std::move(reader));
  for (int i = 0; i < 13; ++i) {
    const std::int64_t before = written;
    engine.step();
    EXPECT_EQ(written, before + 1) << i;
  }
  std::vector<std::int64_t> expected;
  for (std::int64_t fed = 0; fed < 200; fed += StepCosts::kFewest) expected.push_back(fed);
  expected.push_back(200);
  EXPECT_EQ(told, expected);
}

// There is always a request of higher priority; each 256 steps of waiting make up for one.
TEST_P(EngineRequests, AWaitingRequestIsServedInTheEnd) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(64, 1, 64));
  Engine engine(*session, model.tokenizer(), {});
  std::int64_t urgent = 0, before = -1;
  const std::function<void(int)> ask = [&](int priority) {
    EngineRequest request;
    request.prompt = {5, 6};
    request.priority = priority;
    request.stop.max_tokens = 1;
    request.on_end = [&, priority](const EngineReply&) {
      if (priority == 0) before = urgent;
      if (priority > 0 && ++urgent < 400) ask(priority);
    };
    engine.submit(std::move(request));
  };
  ask(0);
  ask(1);
  while (engine.step()) {
  }
  EXPECT_NEAR(static_cast<double>(before), kAgingSteps, 1);
}

// What steps cost decides about drafts: steps that only write are measured, those of prompts are
// not taken for them.
TEST_P(EngineRequests, StepsAreMeasuredForThePlansOfDrafts) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(256, 2, 64));
  Session draft(model, *backend, draft_limits(session->limits(), model.config()));
  std::vector<double> of_one, of_draft;
  EngineOptions options = {.draft = &draft};
  options.plan_drafts = [&](std::span<const DraftOffer> offers, const StepCosts& costs,
                            const StepCosts& drafts) {
    of_one.push_back(costs.seconds(1));
    of_draft.push_back(drafts.seconds(1));
    return test::fixed_drafts(of_one.size() > 3 ? 2 : 0)(offers, costs, drafts);
  };
  Engine engine(*session, model.tokenizer(), options);
  EngineReply reply;
  submit(engine, {.prompt = std::vector<Token>(20, 301), .tokens = 20}, reply);
  while (engine.step()) {
  }
  ASSERT_GT(of_one.size(), 6u);  // the first plan is made before the prompt's step, for no writer
  EXPECT_EQ(of_one[1], 0) << "the prompt's step is no measure";
  EXPECT_GT(of_one[2], 0);
  EXPECT_EQ(of_draft[3], 0);
  EXPECT_GT(of_draft[4], 0);
  EXPECT_GT(engine.costs().seconds(1), 0);
}

TEST_P(EngineRequests, ADraftModelReadsThePromptMeanwhile) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(512, 2, 64));
  Session draft(model, *backend, draft_limits(session->limits(), model.config()));
  Engine engine(*session, model.tokenizer(),
                {.draft = &draft, .plan_drafts = test::fixed_drafts(2)});
  EngineReply reply;
  submit(engine, {.prompt = std::vector<Token>(150, 301), .tokens = 9}, reply);
  for (const std::int64_t fed : {64, 128, 150}) {
    engine.step();
    EXPECT_EQ(session->cache().length(0), fed);
    EXPECT_EQ(draft.cache().length(0), fed);
  }
  while (engine.step()) {
  }
  EXPECT_GT(reply.accepted_tokens, 0);
}

// Rows of logits of a step belong to its replies in their order, with their drafts.
TEST_P(EngineRequests, LogitsAreThoseOfEachReplyInABatch) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(512, 3, 64));
  Session draft(model, *backend, draft_limits(session->limits(), model.config()));
  Engine engine(*session, model.tokenizer(),
                {.draft = &draft, .plan_drafts = test::fixed_drafts(3)});
  const auto vocabulary = static_cast<std::size_t>(model.config().vocab);
  std::int64_t rows = 0, several = 0;
  for (int i = 0; i < 3; ++i) {
    EngineRequest request;
    request.prompt = std::vector<Token>(12, 301 + i);
    request.sampling.temperature = 0;
    request.stop.max_tokens = 30;
    if (i > 0) {
      request.on_logits = [&](std::span<const Token> tokens, std::span<const float> logits) {
        ASSERT_EQ(logits.size(), tokens.size() * vocabulary);
        several += tokens.size() > 1 ? 1 : 0;
        for (std::size_t k = 0; k < tokens.size(); ++k, ++rows) {
          const auto row = logits.subspan(k * vocabulary, vocabulary);
          EXPECT_EQ(std::ranges::max_element(row) - row.begin(), tokens[k]);
        }
      };
    }
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  EXPECT_EQ(rows, 60);
  EXPECT_GT(several, 0) << "some drafts were right";
}

TEST_P(EngineRequests, AnEngineLeavesItsSessionEmpty) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(256, 2, 64));
  std::vector<EngineReply> replies(2);
  for (EngineReply& reply : replies) {
    {
      Engine unfinished(*session, model.tokenizer(), {});
      EngineReply other;
      submit(unfinished, {.prompt = std::vector<Token>(90, 301), .tokens = 50}, other);
      for (int i = 0; i < 5; ++i) unfinished.step();
      EmbeddedText text = {.tokens = std::vector<Token>(100, 302)};
      unfinished.embed_chunk(text);
    }
    EXPECT_EQ(session->cache().free_pages(), session->cache().page_count());
    Engine engine(*session, model.tokenizer(), {});
    submit(engine, {.prompt = {5, 6, 7}, .tokens = 20}, reply);
    while (engine.step()) {
    }
  }
  EXPECT_EQ(replies[0].tokens, replies[1].tokens);
}

// Drafts go no further than the reply: a step beyond the context would fail.
TEST_P(EngineRequests, NoTokenIsDraftedAfterTheLast) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const Model model(test::quantized(folder, "int8"), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  const auto session = session_of(model, *backend, limits(96, 1, 64));
  std::int64_t written = 0, offered = 0;
  EngineOptions options;
  options.plan_drafts = [&](std::span<const DraftOffer> offers, const StepCosts& costs,
                            const StepCosts& draft) {
    for (const DraftOffer& offer : offers) {
      EXPECT_LE(offer.found, 96 - 60 - written - 1);
      offered = std::max(offered, offer.found);
    }
    return test::fixed_drafts(kMaxDraftTokens)(offers, costs, draft);
  };
  Engine engine(*session, model.tokenizer(), options);
  EngineRequest request;
  for (Token i = 0; i < 60; ++i) request.prompt.push_back(301 + i % 20);
  request.replay.tokens = request.prompt;  // drafts that repeat the prompt
  request.on_tokens = [&](std::span<const Token> tokens) { written += std::ssize(tokens); };
  EngineReply reply;
  request.on_end = [&](const EngineReply& ended) { reply = ended; };
  engine.submit(std::move(request));
  while (engine.step()) {
  }
  EXPECT_EQ(reply.stopped, StopReason::context_full);
  EXPECT_FALSE(reply.error);
  EXPECT_EQ(reply.tokens.size(), 36u);
  EXPECT_GT(offered, 10);
}

}  // namespace
}  // namespace leq
