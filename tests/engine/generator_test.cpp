// Tests replies of small trained models: the greedy text of their golden files, stop rules, the KV
// cache that is kept between prompts, and interruption.
#include "engine/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "errors.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

// A small model with one session.
struct SmallModel {
  SmallModel(const std::filesystem::path& folder, const std::string& type, std::int64_t context = 0,
             std::int64_t batch_tokens = 512, int sequences = 1)
      : backend(make_backend({.device = "cpu", .threads = 1})),
        model(test::quantized(folder, type), {}),
        session(model, *backend, limits(model, context, batch_tokens, sequences)) {}

  static RunLimits limits(const Model& model, std::int64_t context, std::int64_t batch_tokens,
                          int sequences) {
    RunLimits limits;
    limits.context = context;
    limits.batch_tokens = batch_tokens;
    limits.sequences = sequences;
    limits.output_tokens = sequences;
    limits.key_type = limits.value_type = default_kv_type(model.type());
    return resolve_limits(limits, model.config());
  }
  std::vector<Token> encode(const std::string& text) const {
    return model.tokenizer().encode(text, {.add_bos = model.tokenizer().add_bos()});
  }

  std::unique_ptr<Backend> backend;
  Model model;
  Session session;
};

SamplingSettings greedy() {
  SamplingSettings settings;
  settings.temperature = 0;
  return settings;
}

SamplingSettings random_settings(std::uint64_t seed) {
  SamplingSettings settings;
  settings.temperature = 1.0f;
  settings.seed = seed;
  return settings;
}

FinishedReply generate(Generator& generator, const std::vector<Token>& prompt, StopRules stop = {},
                       std::uint32_t number = 0) {
  EngineRequest request;
  request.prompt = prompt;
  request.stop = std::move(stop);
  request.reply = number;
  return generator.generate(request);
}

StopRules at_most(std::int64_t tokens) {
  StopRules stop;
  stop.max_tokens = tokens;
  return stop;
}

Json golden_of(const std::filesystem::path& folder) {
  return parse_json(read_file(folder / "golden.json", kMaxJsonBytes), "golden.json");
}

class GreedyText : public testing::TestWithParam<const char*> {};

TEST_P(GreedyText, EqualsTheGoldenWhereItsMarginsAreSure) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  SmallModel engine(folder, "f32");
  // The golden files were generated with end tokens banned.
  const GeneratorOptions options = {.sampling = greedy(),
                                    .banned = engine.model.generation().end_tokens};
  Generator generator(engine.session, engine.model.tokenizer(), options);
  const Json golden = golden_of(folder);
  int compared = 0;
  for (const Json& prompt : golden["prompts"]) {
    if (!prompt.contains("greedy_ids")) continue;  // a long text that has only logits
    const auto ids = prompt["ids"].get<std::vector<Token>>();
    const auto expected = prompt["greedy_ids"].get<std::vector<Token>>();
    const auto sure = prompt["greedy_sure_tokens"].get<std::size_t>();
    if (ids.size() + sure > static_cast<std::size_t>(generator.context())) continue;
    const FinishedReply reply =
        generate(generator, ids, at_most(static_cast<std::int64_t>(expected.size())));
    ASSERT_GE(reply.tokens.size(), sure);
    const std::vector<Token> first(reply.tokens.begin(),
                                   reply.tokens.begin() + static_cast<std::ptrdiff_t>(sure));
    EXPECT_EQ(first, std::vector<Token>(expected.begin(),
                                        expected.begin() + static_cast<std::ptrdiff_t>(sure)));
    EXPECT_EQ(reply.stopped, StopReason::token_limit);
    const std::string text = prompt["greedy_sure_text"].get<std::string>();
    EXPECT_NE(reply.text.find(text), std::string::npos) << reply.text;
    EXPECT_LE(reply.text.find(text), 1u);  // a leading space may precede it
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, GreedyText,
                         testing::Values("storyteller", "gpt2-tiny", "mistral-tiny", "qwen2-tiny",
                                         "qwen3-tiny", "qwen35-tiny", "qwen3moe-tiny", "gemma-3",
                                         "gpt-oss", "smollm3", "granite", "granite-4", "phi-3",
                                         "mixtral"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

const std::string kPrompt = "Once upon a time, there was a little girl who lived in a small house";

TEST(Generator, StopStringsEndTheReplyAndAreLeftOut) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply whole = generate(generator, prompt, at_most(60));
  // The stop string occurs in the text that is generated anyway, and splits words.
  const std::string stop = whole.text.substr(whole.text.size() / 2, 7);
  StopRules rules = at_most(60);
  rules.strings = {"never written", stop};
  std::string streamed;
  EngineRequest request;
  request.prompt = prompt;
  request.stop = rules;
  request.on_text = [&](std::string_view text) {
    EXPECT_FALSE(text.empty());
    streamed += text;
  };
  const FinishedReply stopped = generator.generate(request);
  EXPECT_EQ(stopped.stopped, StopReason::stop_string);
  EXPECT_EQ(stopped.stop_string, stop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(streamed, stopped.text);
  EXPECT_LT(stopped.tokens.size(), whole.tokens.size());
}

TEST(Generator, AnEndTokenEndsTheReplyAndIsNoPartOfIt) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply whole = generate(generator, prompt, at_most(30));
  StopRules rules = at_most(30);
  rules.end_tokens = {whole.tokens[12]};
  const auto first = std::ranges::find(whole.tokens, whole.tokens[12]) - whole.tokens.begin();
  const FinishedReply ended = generate(generator, prompt, rules);
  EXPECT_EQ(ended.stopped, StopReason::end_token);
  EXPECT_EQ(ended.tokens, std::vector<Token>(whole.tokens.begin(), whole.tokens.begin() + first));
}

TEST(Generator, TellsHowMuchOfThePromptIsFed) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  constexpr std::int64_t kChunk = 16;
  SmallModel engine(folder, "int8", 0, kChunk);
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  std::vector<Token> prompt = engine.encode(kPrompt + kPrompt + kPrompt + kPrompt + kPrompt);
  const auto told = [&] {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    EngineRequest request;
    request.prompt = prompt;
    request.stop = at_most(3);
    request.on_prompt = [&](std::int64_t fed, std::int64_t of) { all.push_back({fed, of}); };
    generator.generate(request);
    return all;
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  const auto length = std::ssize(prompt);
  for (std::int64_t fed = 0; fed < length; fed += kChunk) expected.push_back({fed, length});
  expected.push_back({length, length});
  EXPECT_EQ(told(), expected);
  // The prompt continues the cached text, so only its new part is fed.
  const std::vector<Token> more = engine.encode("The end");
  prompt.insert(prompt.end(), more.begin(), more.end());
  const auto again = told();
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again.front().first, 0);
  EXPECT_EQ(again.back().first, again.back().second);
  EXPECT_LT(again.back().second, kPageTokens + std::ssize(more));
}

TEST(Generator, ZeroTokensAreNoTokens) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const FinishedReply reply = generate(generator, engine.encode(kPrompt), at_most(0));
  EXPECT_EQ(reply.stopped, StopReason::token_limit);
  EXPECT_TRUE(reply.tokens.empty());
  EXPECT_TRUE(reply.text.empty());
}

TEST(Generator, PromptAndReplyFillTheContextExactly) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  constexpr std::int64_t kContext = 40;
  SmallModel engine(folder, "int8", kContext);
  Generator generator(engine.session, engine.model.tokenizer(),
                      {.sampling = greedy(), .banned = {engine.model.tokenizer().eos()}});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply reply = generate(generator, prompt);
  EXPECT_EQ(reply.stopped, StopReason::context_full);
  EXPECT_EQ(prompt.size() + reply.tokens.size(), static_cast<std::size_t>(kContext));
  // With a larger context, the reply must begin with the same tokens.
  SmallModel larger(folder, "int8", 4 * kContext);
  Generator longer(larger.session, larger.model.tokenizer(),
                   {.sampling = greedy(), .banned = {larger.model.tokenizer().eos()}});
  EXPECT_EQ(generate(longer, prompt, at_most(std::ssize(reply.tokens))).tokens, reply.tokens);
}

TEST(Generator, RefusesSettingsThatNothingCanBeDrawnBy) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8", 16);
  SamplingSettings wrong = greedy();
  wrong.top_p = 2;
  const auto make = [&] {
    const Generator generator(engine.session, engine.model.tokenizer(), {.sampling = wrong});
  };
  EXPECT_THROW(make(), Error);
}

TEST(Generator, RefusesPromptsThatItCannotGoOnFrom) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8", 16);
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  EXPECT_THROW(generate(generator, {}), Error);
  EXPECT_THROW(generate(generator, std::vector<Token>(16, 5)), Error);
  EXPECT_THROW(generate(generator, {1, -1}), Error);
  EXPECT_THROW(generate(generator, {1, static_cast<Token>(engine.model.config().vocab)}), Error);
  EXPECT_EQ(generate(generator, std::vector<Token>(15, 5)).tokens.size(), 1u);
}

TEST(Generator, AKeptCacheGivesTheReplyOfAFreshRun) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8", 0, 16);
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = random_settings(7)});
  const std::vector<Token> first = engine.encode(kPrompt);
  std::vector<Token> longer = first;
  const FinishedReply begun = generate(generator, first, at_most(20));
  longer.insert(longer.end(), begun.tokens.begin(), begun.tokens.begin() + 10);
  longer.push_back(first[1]);  // differs from the cached token
  const std::vector<std::vector<Token>> prompts = {longer, first, engine.encode("The king"),
                                                   longer};
  std::uint32_t number = 1;
  for (const auto& prompt : prompts) {
    const FinishedReply kept = generate(generator, prompt, at_most(20), number);
    SmallModel fresh(folder, "int8");
    Generator alone(fresh.session, fresh.model.tokenizer(), {.sampling = random_settings(7)});
    const FinishedReply plain = generate(alone, prompt, at_most(20), number);
    EXPECT_EQ(kept.tokens, plain.tokens) << number;
    EXPECT_EQ(kept.text, plain.text) << number;
    EXPECT_EQ(plain.cached_tokens, 0);
    EXPECT_EQ(kept.cached_tokens + kept.fed_tokens, std::ssize(prompt));
    ++number;
  }
}

TEST(Generator, OnlyWhatTheCacheLacksIsFed) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  EXPECT_EQ(generate(generator, prompt, at_most(8)).fed_tokens, std::ssize(prompt));
  const FinishedReply again = generate(generator, prompt, at_most(8));
  EXPECT_EQ(again.fed_tokens, 1);  // the logits of the last token are needed
  std::vector<Token> longer = prompt;
  longer.insert(longer.end(), again.tokens.begin(), again.tokens.end());
  longer.push_back(prompt[1]);
  // Two tokens are fed: the last reply token, which was sampled but not fed, and the new token.
  EXPECT_EQ(generate(generator, longer, at_most(1)).fed_tokens, 2);
}

TEST(Generator, RepliesDifferByTheirNumberAndSeedAndBySomethingElseNever) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = random_settings(1)});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply first = generate(generator, prompt, at_most(40), 0);
  const FinishedReply second = generate(generator, prompt, at_most(40), 1);
  EXPECT_NE(first.tokens, second.tokens);
  EXPECT_EQ(generate(generator, prompt, at_most(40), 0).tokens, first.tokens);
  EXPECT_EQ(generate(generator, prompt, at_most(40), 1).tokens, second.tokens);
  generator.set_sampling(random_settings(2));
  EXPECT_NE(generate(generator, prompt, at_most(40), 0).tokens, first.tokens);
  generator.set_sampling(random_settings(1));
  EXPECT_EQ(generate(generator, prompt, at_most(40), 0).tokens, first.tokens);
}

// Generates replies concurrently, each as a sequence of one batch. Replies begin one after another
// and end at different times, so their positions in the batch change.
std::vector<Reply> write_together(SmallModel& engine, std::vector<Reply> replies) {
  Transformer& transformer = engine.session.transformer();
  std::vector<std::size_t> held(replies.size());
  for (std::size_t step = 0;; ++step) {
    Batch batch;
    std::vector<std::size_t> rows;
    std::vector<SampleRequest> requests;
    for (std::size_t i = 0; i < std::min(replies.size(), step + 1); ++i) {
      if (replies[i].stopped() != StopReason::none) continue;
      const auto rest = replies[i].context().subspan(held[i]);
      batch.add(static_cast<std::int32_t>(i), rest.data(), std::ssize(rest), Batch::Want::last);
      held[i] += rest.size();
      rows.push_back(i);
      requests.push_back(replies[i].request());
    }
    if (rows.empty()) return replies;
    const Rows& logits = transformer.forward(batch, engine.session.cache());
    std::vector<Token> drawn(rows.size());
    transformer.backend().sample(logits, requests, drawn);
    for (std::size_t row = 0; row < rows.size(); ++row) replies[rows[row]].take(drawn[row]);
  }
}

class SideBySide : public testing::TestWithParam<int> {};  // SamplingSettings::mirostat

TEST_P(SideBySide, RepliesAreThoseWrittenAlone) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  const std::vector<std::string> prompts = {"The king", kPrompt, "One day a fox"};
  const std::vector<std::int64_t> limits = {25, 5, 40};
  SmallModel engine(folder, "int8", 3 * 128, 512, 3);
  SmallModel alone(folder, "int8");
  const Tokenizer& tokenizer = engine.model.tokenizer();
  const auto vocabulary = static_cast<std::size_t>(engine.model.config().vocab);
  SamplingSettings sampling = random_settings(9);
  sampling.frequency_penalty = 0.2f;
  sampling.typical_p = 0.9f;
  sampling.top_n_sigma = 4;
  sampling.xtc_probability = 0.5f;
  sampling.dry_multiplier = 0.8f;
  sampling.logit_bias = {{20, 1.5f}, {21, kNoLogit}};
  sampling.mirostat = GetParam();
  std::vector<Reply> replies;
  for (std::uint32_t i = 0; i < 3; ++i) {
    replies.emplace_back(
        tokenizer, engine.encode(prompts[i]),
        Sampler(sampling, vocabulary, ids_without_token(tokenizer, vocabulary), tokenizer),
        ReplyRules{.stop = at_most(limits[i]), .context = 128, .number = 4 + i});
  }
  replies = write_together(engine, std::move(replies));
  Generator generator(alone.session, alone.model.tokenizer(), {.sampling = sampling});
  for (std::uint32_t i = 0; i < 3; ++i) {
    const FinishedReply want =
        generate(generator, alone.encode(prompts[i]), at_most(limits[i]), 4 + i);
    EXPECT_EQ(std::vector<Token>(replies[i].tokens().begin(), replies[i].tokens().end()),
              want.tokens);
    replies[i].finish();
    EXPECT_EQ(replies[i].text(), want.text);
    EXPECT_EQ(replies[i].stopped(), want.stopped);
  }
}

INSTANTIATE_TEST_SUITE_P(Generator, SideBySide, testing::Values(0, 2));

// Mirostat's state belongs to one reply: every reply, also a repeated one, starts a new state.
TEST(Generator, MirostatBeginsAnewWithEachReply) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  SamplingSettings sampling = random_settings(1);
  sampling.mirostat = 2;
  sampling.mirostat_lr = 1;
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = sampling});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply first = generate(generator, prompt, at_most(40), 0);
  EXPECT_NE(generate(generator, prompt, at_most(40), 1).tokens, first.tokens);
  EXPECT_EQ(generate(generator, prompt, at_most(40), 0).tokens, first.tokens);
  // The first tokens are those of a shorter reply, because later tokens have no influence on them.
  const FinishedReply shorter = generate(generator, prompt, at_most(15), 0);
  EXPECT_TRUE(std::ranges::equal(shorter.tokens, std::span(first.tokens).first(15)));
}

TEST(Generator, AReplyWithoutATokenIsAnErrorAndTheNextOneIsNot) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  const std::vector<Token> prompt = engine.encode(kPrompt);
  std::vector<Token> all(static_cast<std::size_t>(engine.model.config().vocab));
  std::iota(all.begin(), all.end(), 0);
  Generator mute(engine.session, engine.model.tokenizer(), {.sampling = greedy(), .banned = all});
  EXPECT_EQ(test::error_of([&] { generate(mute, prompt); }), "sampler: every token is banned");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  EXPECT_EQ(generate(generator, prompt, at_most(3)).tokens.size(), 3u);
}

TEST(Generator, AnInterruptStopsBetweenTokens) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8");
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const std::vector<Token> prompt = engine.encode(kPrompt);
  const FinishedReply whole = generate(generator, prompt, at_most(20));
  std::atomic<bool> interrupted = false;
  EngineRequest request;
  request.prompt = prompt;
  int pieces = 0;
  request.on_text = [&](std::string_view) { interrupted = ++pieces == 5; };
  const FinishedReply stopped = generator.generate(request, &interrupted);
  EXPECT_EQ(stopped.stopped, StopReason::interrupted);
  EXPECT_LT(stopped.tokens.size(), whole.tokens.size());
  EXPECT_TRUE(whole.text.starts_with(stopped.text));
  EXPECT_FALSE(stopped.text.empty());
  // After the error, the cache is as usable as before.
  EXPECT_EQ(generate(generator, prompt, at_most(20)).tokens, whole.tokens);
}

TEST(Generator, AnInterruptStopsBetweenChunksOfThePrompt) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  SmallModel engine(folder, "int8", 0, 4);
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = greedy()});
  const std::atomic<bool> interrupted = true;
  EngineRequest request;
  const std::vector<Token> prompt = engine.encode(kPrompt);
  request.prompt = prompt;
  const FinishedReply reply = generator.generate(request, &interrupted);
  EXPECT_EQ(reply.stopped, StopReason::interrupted);
  EXPECT_EQ(reply.fed_tokens, 0);
  EXPECT_TRUE(reply.tokens.empty());
}

TEST(Generator, TextPiecesNeverCutACharacter) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  SmallModel engine(folder, "f32");
  // The temperature is so high that byte tokens occur in any order.
  SamplingSettings wild = random_settings(3);
  wild.temperature = 50.0f;
  wild.top_k = 0;
  wild.top_p = 1.0f;
  wild.min_p = 0.0f;
  Generator generator(engine.session, engine.model.tokenizer(), {.sampling = wild});
  EngineRequest request;
  const std::vector<Token> prompt = engine.encode("Once");
  request.prompt = prompt;
  request.stop = at_most(300);
  std::size_t replaced = 0;
  request.on_text = [&](std::string_view text) {
    EXPECT_FALSE(first_invalid_utf8(text)) << printable(text);
    replaced += text.find("\xef\xbf\xbd") != std::string_view::npos;
  };
  const FinishedReply reply = generator.generate(request);
  EXPECT_GT(reply.tokens.size(), 250u);
  EXPECT_GT(replaced, 0u);  // the run did produce invalid bytes
}

}  // namespace
}  // namespace leq
