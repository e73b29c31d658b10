// Rows that fail while steps run ahead: the reply must end like one that waits for each token, and
// other replies must not be affected. The tests damage numbers in the emulated device's memory.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cuda/emulated/emulated_device.h"
#include "cuda/layout/layout.h"
#include "engine/engine.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class AheadFaults : public testing::Test {
 protected:
  void SetUp() override {
    LEQ_SHARED_OR_SKIP(folder, "models/mistral-tiny");
    model_.emplace(test::quantized(folder, "f32"), LoadOptions());
  }

  void begin(bool run_ahead) {
    engine_.reset();
    session_.reset();
    backend_ = make_backend({.device = "sim", .threads = 1});
    RunLimits limits;
    limits.context = 128;
    limits.sequences = 2;
    limits.batch_tokens = 16;
    limits.output_tokens = 2;
    session_.emplace(*model_, *backend_, resolve_limits(limits, model_->config()));
    engine_.emplace(
        *session_, model_->tokenizer(),
        EngineOptions{.reuse_prefixes = false, .speculate = false, .run_ahead = run_ahead});
  }
  static EngineRequest request() {
    EngineRequest request;
    request.prompt = {1, 300, 301, 302};
    request.sampling.temperature = 0;
    request.stop.max_tokens = 12;
    return request;
  }
  EngineReply write(std::vector<Token> end_tokens, const std::function<void(std::size_t)>& at) {
    EngineReply ended;
    EngineRequest request = this->request();
    request.stop.end_tokens = std::move(end_tokens);
    std::size_t tokens = 0;
    request.on_tokens = [&](std::span<const Token> more) { at(tokens += more.size()); };
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    engine_->submit(std::move(request));
    while (engine_->step()) {
    }
    return ended;
  }
  EngineReply write() {
    return write({}, [](std::size_t) {});
  }
  // Begins a reply and steps until it has `wanted` tokens; `ended` receives the final reply.
  void write_some(std::size_t wanted, EngineReply& ended) {
    EngineRequest request = this->request();
    written_ = 0;
    request.on_tokens = [&](std::span<const Token> more) { written_ += more.size(); };
    request.on_end = [&](const EngineReply& reply) { ended = reply; };
    engine_->submit(std::move(request));
    while (written_ < wanted) engine_->step();
  }
  // Returns a weight in the emulated device's memory, which the host can access.
  static float& number(const void* weights, std::int64_t index) {
    return const_cast<float*>(static_cast<const float*>(weights))[index];
  }

  float& of_token(Token token) const {
    return number(session_->weights().token_embedding.codes,
                  token * gpu::float_stride(model_->config().width));
  }

  std::optional<Model> model_;
  std::unique_ptr<Backend> backend_;
  std::optional<Session> session_;
  std::optional<Engine> engine_;
  std::size_t written_ = 0;  // tokens of the reply begun by write_some
};

TEST_F(AheadFaults, EndTheReplyWithTheErrorOfAWaitingStep) {
  using Place = std::function<float&(const Session&)>;
  const std::vector<Place> places = {
      [](const Session& session) -> float& {  // makes a row non-finite
        return number(session.weights().layers[1].attention().norm.gain, 3);
      },
      [](const Session& session) -> float& {  // makes a logit non-finite
        return number(session.weights().head.segments[0].weight.codes, 0);
      },
  };
  for (const Place& place : places) {
    EngineReply replies[2];
    for (const bool run_ahead : {false, true}) {
      begin(run_ahead);
      const EngineReply whole = write();
      ASSERT_EQ(whole.tokens.size(), 12u);
      float& damaged = place(*session_);
      const float before = damaged;
      EngineReply& reply = replies[run_ahead ? 1 : 0];
      reply = write({}, [&](std::size_t tokens) { damaged = tokens == 5 ? kNaN : damaged; });
      damaged = before;
      EXPECT_EQ(reply.stopped, StopReason::failed);
      EXPECT_EQ(write().tokens, whole.tokens);
      EXPECT_EQ(engine_->counts().steps_ahead > 0, run_ahead);
    }
    ASSERT_TRUE(replies[0].error && replies[1].error);
    EXPECT_STREQ(replies[1].error->what(), replies[0].error->what());
    EXPECT_EQ(replies[1].tokens, replies[0].tokens);
    EXPECT_EQ(replies[0].tokens.size(), 5u);
  }
}

// If a draw fails, the step launched after it is dropped, and a step that waits feeds the row
// again. If that succeeds, no error is reported.
TEST_F(AheadFaults, ThatDoNotRecurAreNotReported) {
  begin(true);
  const EngineReply whole = write();
  ASSERT_EQ(whole.tokens.size(), 12u);
  float& damaged = number(session_->weights().head.segments[0].weight.codes, 0);
  const float before = damaged;
  EngineReply ended;
  write_some(5, ended);
  damaged = kNaN;
  engine_->step();
  EXPECT_EQ(written_, 5u);
  damaged = before;
  while (engine_->step()) {
  }
  EXPECT_FALSE(ended.error);
  EXPECT_EQ(ended.tokens, whole.tokens);
  EXPECT_EQ(ended.text, whole.text);
}

// Other users of the session are not affected before the host has checked a step.
TEST_F(AheadFaults, DoNotAffectOtherUsersOfTheSession) {
  begin(true);
  const std::vector<Token> text = {1, 400, 401};
  const std::vector<float> vector = engine_->embed(text);
  const EngineReply whole = write();
  float& damaged = of_token(whole.tokens[4]);
  const float before = damaged;
  EngineReply ended;
  write_some(5, ended);
  damaged = kNaN;  // the step that feeds this token has begun
  std::vector<float> again;
  EXPECT_NO_THROW(again = engine_->embed(text));
  EXPECT_EQ(again, vector);
  while (engine_->step()) {
  }
  EXPECT_EQ(ended.stopped, StopReason::failed);
  EXPECT_EQ(ended.tokens.size(), 5u);
  damaged = before;
  EXPECT_EQ(write().tokens, whole.tokens);
}

// The step after an end token only feeds that token, so its failure must not be reported.
TEST_F(AheadFaults, BehindAnEndTokenAreNotReported) {
  begin(true);
  const EngineReply whole = write();
  ASSERT_EQ(whole.tokens.size(), 12u);
  const Token end = whole.tokens[6];
  const auto used = std::span(whole.tokens).first(6);
  ASSERT_EQ(std::ranges::count(used, end), 0);
  float& damaged = of_token(end);
  const float before = damaged;
  damaged = kNaN;
  const std::int64_t steps = engine_->counts().steps_ahead;
  const EngineReply reply = write({end}, [](std::size_t) {});
  EXPECT_EQ(reply.stopped, StopReason::end_token);
  EXPECT_EQ(reply.tokens.size(), 6u);
  EXPECT_EQ(engine_->counts().steps_ahead - steps, 6);
  EXPECT_NO_THROW(backend_->synchronize());
  damaged = before;
  EXPECT_EQ(write().tokens, whole.tokens);
}

// A step ahead throws because the launch of a kernel, of a replay or of the following draw is
// refused. The step that waits then feeds the same token at the same position.
TEST_F(AheadFaults, OfALaunchLeaveThePositionUnchanged) {
  for (const bool record : {false, true}) {
    begin(true);
    backend_->record_steps(record);
    const EngineReply whole = write();
    ASSERT_EQ(whole.tokens.size(), 12u);
    const std::int64_t usual = engine_->counts().steps_ahead;
    // The refused launch is a kernel of embedding and layers, or, for a step that is replayed as a
    // whole, a kernel that draws.
    for (const int others : record ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 3, 13}) {
      SCOPED_TRACE(others);
      const std::int64_t before = engine_->counts().steps_ahead;
      EngineReply ended;
      write_some(5, ended);
      const std::int64_t length = session_->cache().length(0);
      EXPECT_EQ(length, std::ssize(request().prompt) + 5);
      sim::rt::fail_launch(others);
      engine_->step();  // submits no step; takes the last token
      EXPECT_EQ(written_, 6u);
      EXPECT_EQ(session_->cache().length(0), length);
      while (engine_->step()) {
      }
      EXPECT_FALSE(ended.error);
      EXPECT_EQ(ended.tokens, whole.tokens);
      EXPECT_EQ(ended.text, whole.text);
      // All steps ahead succeed except the one that failed.
      EXPECT_EQ(engine_->counts().steps_ahead - before, usual - 1);
    }
    EXPECT_EQ(backend_->step_counts().replayed > 0, record);
    sim::rt::fail_launch(-1);
  }
}

}  // namespace
}  // namespace leq
