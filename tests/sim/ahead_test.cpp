// Replies whose steps are submitted before the host has the token that they feed. Tokens, texts,
// ends and caches must be the same as with an engine that waits, on every available GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "gpu_devices.h"
#include "kv_numbers.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

enum class Mode : bool { waits, runs_ahead };

struct Rig {
  std::string device;
  std::filesystem::path file;
  KvType kv = KvType::f16;
  std::optional<int> recent = {};
  std::int64_t context = 40;
  bool speculate = false;
};

// A session with an engine that generates replies one after another.
class Writer {
 public:
  Writer(const Rig& rig, Mode mode)
      : model_(rig.file, {}), backend_(make_backend({.device = rig.device, .threads = 1})) {
    RunLimits limits;
    limits.context = rig.context;
    limits.sequences = 2;
    limits.batch_tokens = 64;
    limits.output_tokens = 8;
    limits.key_type = limits.value_type = rig.kv;
    limits.kv_recent = rig.recent;
    session_.emplace(model_, *backend_, resolve_limits(limits, model_.config()));
    engine_.emplace(
        *session_, model_.tokenizer(),
        EngineOptions{.speculate = rig.speculate, .run_ahead = mode == Mode::runs_ahead});
  }

  // Generates a reply; `at_piece` is called for each piece of text with their number so far.
  EngineReply write(EngineRequest request, const std::function<void(int)>& at_piece = {}) {
    EngineReply ended;
    std::string text;
    int pieces = 0;
    request.on_text = [&](std::string_view piece) {
      text += piece;
      if (at_piece) at_piece(++pieces);
    };
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    last_ = engine_->submit(std::move(request));
    while (engine_->step()) {
    }
    EXPECT_EQ(text, ended.text);
    return ended;
  }

  Engine& engine() { return *engine_; }
  Session& session() { return *session_; }
  const Model& model() const { return model_; }
  RequestId last() const { return last_; }
  std::int64_t steps_ahead() const { return engine_->counts().steps_ahead; }
  // Returns the cache's content for these tokens, as bytes.
  std::vector<std::byte> kept(std::span<const Token> tokens) {
    const SavedPrefix saved = engine_->save_prefix(tokens);
    // In a session of its own, because the engine's prefixes may hold all pages of this one.
    Session reader(model_, *backend_, session_->limits());
    const SequenceState state = reader.state();
    state.load(0, saved.kv, "kept");
    std::vector<std::byte> bytes =
        test::kv_numbers(reader.cache(), backend_->memory(), backend_->layout(), 0);
    const std::size_t of_state = state.fixed() == nullptr ? 0 : state.fixed()->whole_bytes();
    bytes.insert(bytes.end(), saved.kv.end() - static_cast<std::ptrdiff_t>(of_state),
                 saved.kv.end());
    bytes.push_back(static_cast<std::byte>(saved.tokens.size()));
    return bytes;
  }

 private:
  Model model_;
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
  std::optional<Engine> engine_;
  RequestId last_ = 0;
};

EngineRequest request_of(std::int64_t tokens) {
  EngineRequest request;
  request.prompt = {1, 300, 301, 302};
  request.sampling.temperature = 0;
  request.stop.max_tokens = tokens;
  return request;
}

void expect_same(const EngineReply& got, const EngineReply& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.stopped, want.stopped);
  EXPECT_EQ(got.stop_string, want.stop_string);
  EXPECT_EQ(got.cached_tokens, want.cached_tokens);
  EXPECT_EQ(got.fed_tokens, want.fed_tokens);
  EXPECT_EQ(got.decoded_tokens, want.decoded_tokens);
  EXPECT_EQ(got.error.has_value(), want.error.has_value());
  if (got.error && want.error) {
    EXPECT_STREQ(got.error->what(), want.error->what());
  }
}

class StepsAhead : public testing::TestWithParam<std::string> {
 protected:
  Rig rig(const std::filesystem::path& folder, const std::string& type) const {
    return {.device = GetParam(), .file = test::quantized(folder, type)};
  }
};

// Replies run one after another, so that a later one uses the cache of earlier ones.
TEST_P(StepsAhead, GiveTheRepliesOfWaitingSteps) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  const Rig rig = this->rig(folder, "int8");
  Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
  const EngineReply first = waits.write(request_of(16));
  expect_same(ahead.write(request_of(16)), first);
  ASSERT_EQ(first.tokens.size(), 16u);
  EXPECT_EQ(ahead.steps_ahead(), 14);  // all steps but those of the first and the last token
  EXPECT_EQ(waits.steps_ahead(), 0);

  std::vector<EngineRequest> requests;
  for (const std::int64_t tokens : {0, 1, 2, 3}) requests.push_back(request_of(tokens));
  requests.push_back(request_of(16));
  requests.back().stop.end_tokens = {first.tokens[11]};
  requests.push_back(request_of(16));
  requests.back().stop.end_tokens = {first.tokens[1]};
  requests.push_back(request_of(16));
  requests.back().stop.strings = {first.text.substr(first.text.size() / 2, 5)};
  requests.push_back(request_of(-1));  // until the context is full
  requests.back().sampling.temperature = 0.8f;
  requests.push_back(request_of(5));
  requests.back().prompt.insert(requests.back().prompt.end(), first.tokens.begin(),
                                first.tokens.begin() + 10);
  for (const float top_p : {1.0f, 0.9f}) {
    requests.push_back(request_of(8));
    requests.back().sampling.temperature = 1.0f;
    requests.back().sampling.top_p = top_p;
    requests.back().sampling.logit_bias = {{first.tokens[0], -3.0f}};
    requests.back().reply = 7;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const std::int64_t before = ahead.steps_ahead();
    const EngineReply want = waits.write(requests[i]);
    expect_same(ahead.write(requests[i]), want);
    if (want.tokens.size() > 2) {
      EXPECT_GT(ahead.steps_ahead(), before);
    }
    std::vector<Token> all = requests[i].prompt;
    all.insert(all.end(), want.tokens.begin(), want.tokens.end());
    EXPECT_EQ(ahead.kept(all), waits.kept(all));
    EXPECT_EQ(ahead.session().cache().free_pages(), waits.session().cache().free_pages());
  }
}

// Codes of complete blocks are computed while steps run ahead; also by a step that is rolled back
// later.
TEST_P(StepsAhead, GiveTheSameRepliesWithEveryCacheType) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  for (const KvType kv : {KvType::f32, KvType::int8, KvType::simq4}) {
    SCOPED_TRACE(kv_type_name(kv));
    Rig rig = this->rig(folder, "int8");
    rig.context = 128;
    rig.kv = kv;
    if (kv == KvType::simq4) rig.recent = 8;
    Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
    for (const std::size_t prompt : {28, 37, 61}) {
      EngineRequest request = request_of(6);
      while (request.prompt.size() < prompt)
        request.prompt.push_back(300 + request.prompt.back() % 7);
      const EngineReply want = waits.write(request);
      expect_same(ahead.write(request), want);
      request.stop.end_tokens = {want.tokens.back()};
      expect_same(ahead.write(request), waits.write(request));
    }
    EXPECT_GT(ahead.steps_ahead(), 0);
  }
}

// With draft tokens from the text: drafts are made at the same tokens, or one token later.
TEST_P(StepsAhead, GiveTheSameRepliesWithDrafts) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  Rig rig = this->rig(folder, "int8");
  rig.context = 256;
  Writer waits(rig, Mode::waits);
  rig.speculate = true;
  Writer ahead(rig, Mode::runs_ahead);
  EngineRequest request = request_of(24);
  request.prompt.clear();
  for (int i = 0; i < 24; ++i) request.prompt.push_back(400 + i % 6);
  const EngineReply want = waits.write(request);
  EXPECT_EQ(ahead.write(request).tokens, want.tokens);
  EXPECT_GT(ahead.steps_ahead(), 0);
  request.expected = want.tokens;
  EXPECT_EQ(ahead.write(request).tokens, want.tokens);
  EXPECT_GT(ahead.engine().counts().accepted_tokens, 0);
}

// Settings that need the text or the logits must wait for each token.
TEST_P(StepsAhead, DoNotRunIfADrawNeedsThePreviousToken) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  const Rig rig = this->rig(folder, "int8");
  Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
  std::vector<EngineRequest> requests(5, request_of(4));
  for (EngineRequest& request : requests) request.sampling.temperature = 0.9f;
  requests[0].sampling.repeat_penalty = 1.3f;
  requests[1].sampling.dry_multiplier = 0.8f;
  requests[2].sampling.mirostat = 2;
  requests[3].sampling.typical_p = 0.9f;
  requests[4].sampling.temperature = 0;
  requests[4].sampling.frequency_penalty = 0.5f;
  requests[4].sampling.penalties_when_greedy = true;
  for (const EngineRequest& request : requests) {
    expect_same(ahead.write(request), waits.write(request));
  }
  std::vector<float> logits[2];
  EngineRequest watched = request_of(4);
  const auto watch = [&](int i) {
    watched.on_logits = [&logits, i](std::span<const Token>, std::span<const float> rows) {
      logits[i].insert(logits[i].end(), rows.begin(), rows.end());
    };
    return watched;
  };
  expect_same(ahead.write(watch(0)), waits.write(watch(1)));
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(logits[0].size(), 4 * static_cast<std::size_t>(ahead.model().config().vocab));
  EXPECT_EQ(ahead.steps_ahead(), 0);
}

// Between the steps there are a second request, an embedding request, a saved prompt, and sampling
// on the same device by another user.
TEST_P(StepsAhead, GiveTheSameRepliesWithOtherWorkInBetween) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  Rig rig = this->rig(folder, "int8");
  rig.context = 256;
  Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
  const EngineReply want = waits.write(request_of(24));
  EngineRequest second = request_of(4);
  second.prompt = {1, 500, 501};
  const EngineReply want_second = waits.write(second);
  const std::vector<float> vector = waits.engine().embed(second.prompt);

  EngineReply got, got_second;
  EngineRequest request = request_of(24);
  int tokens = 0;
  request.on_tokens = [&](std::span<const Token>) { ++tokens; };
  request.on_end = [&](const EngineReply& reply) { got = reply; };
  second.on_end = [&](const EngineReply& reply) { got_second = reply; };
  Engine& engine = ahead.engine();
  engine.submit(request);
  while (tokens < 5) engine.step();
  engine.submit(second);
  while (engine.step() && got_second.tokens.empty()) {
  }
  const int between = tokens;
  const std::int64_t alone = engine.counts().steps_ahead;
  while (tokens < between + 3) engine.step();
  EXPECT_GT(engine.counts().steps_ahead, alone);
  EXPECT_EQ(engine.embed(std::vector<Token>{1, 500, 501}), vector);
  while (tokens < between + 6) engine.step();
  const SavedPrefix saved = engine.save_prefix(second.prompt);
  EXPECT_FALSE(saved.tokens.empty());
  while (tokens < between + 9) engine.step();
  Backend& backend = ahead.session().transformer().backend();
  {
    const Rows logits = backend.allocate_rows(1, 5, {});
    std::vector<std::int32_t> drawn(1);
    backend.assign(std::vector<float>{0, 9, 0, 0, 0}, const_cast<Rows&>(logits));
    SampleRequest greedy;
    greedy.rule.temperature = 0;
    backend.sample(logits, std::span(&greedy, 1), drawn);
    EXPECT_EQ(drawn[0], 1);
  }
  while (engine.step()) {
  }
  expect_same(got, want);
  EXPECT_EQ(got_second.tokens, want_second.tokens);
  EXPECT_EQ(got.evictions + got_second.evictions, 0);
}

TEST_P(StepsAhead, OfACancelledReplyAreRolledBack) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  const Rig rig = this->rig(folder, "int8");
  Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
  const EngineReply whole = waits.write(request_of(16));
  EngineReply cut[2];
  std::vector<std::byte> kept[2];
  for (const Mode mode : {Mode::waits, Mode::runs_ahead}) {
    Writer writer(rig, mode);
    cut[static_cast<int>(mode)] = writer.write(request_of(16), [&](int pieces) {
      if (pieces == 5) writer.engine().cancel(writer.last());
    });
    std::vector<Token> all = request_of(0).prompt;
    const std::vector<Token>& tokens = cut[static_cast<int>(mode)].tokens;
    all.insert(all.end(), tokens.begin(), tokens.end());
    kept[static_cast<int>(mode)] = writer.kept(all);
    expect_same(writer.write(request_of(16)),
                [&] {  // begins with what the cancelled request left
                  EngineReply again = whole;
                  again.cached_tokens = 3;
                  again.fed_tokens = 1;
                  return again;
                }());
  }
  expect_same(cut[1], cut[0]);
  EXPECT_EQ(kept[1], kept[0]);
  EXPECT_EQ(cut[0].stopped, StopReason::interrupted);
  EXPECT_LT(cut[0].tokens.size(), 10u);
}

// A step ahead evicts pages of earlier texts, just as a step that waits.
TEST_P(StepsAhead, EvictPagesOfEarlierTexts) {
  LEQ_SHARED_OR_SKIP(folder, "models/gpt2-tiny");
  Rig rig = this->rig(folder, "int8");
  rig.context = 128;  // two pages
  Writer waits(rig, Mode::waits), ahead(rig, Mode::runs_ahead);
  for (const Token first : {300, 400}) {
    EngineRequest request = request_of(6);
    request.prompt.assign(60, first);
    expect_same(ahead.write(request), waits.write(request));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, StepsAhead, testing::ValuesIn(test::gpu_devices()),
                         [](const auto& item) { return test::test_name(item.param); });

}  // namespace
}  // namespace leq
