// A model opened by open_runtime must compute the same as a session created by hand, within its
// memory plan. Threads that share its engine must get the same results as one thread.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "errors.h"
#include "models_fixture.h"
#include "runtime/engine_thread.h"
#include "runtime/runtime.h"

namespace leq::test {
namespace {

std::filesystem::path story_path(const std::string& type = "int8") {
  return quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", type);
}

RunLimits small_limits(const Model&) {
  RunLimits limits;
  limits.context = 256;
  limits.sequences = 2;
  limits.sequence_context = 256;
  limits.output_tokens = reply_rows(limits.sequences, Drafting::from_text);
  return limits;
}

RuntimeOptions small_options(int ranks = 1) {
  RuntimeOptions options;
  options.file = story_path();
  options.device.threads = 2;
  options.ranks = ranks;
  options.limits = small_limits;
  return options;
}

std::vector<Token> story_of(Session& session, const Model& model, Session* draft = nullptr) {
  Engine writer(session, model.tokenizer(), {.draft = draft});
  std::vector<Token> tokens;
  EngineRequest request;
  request.prompt = model.tokenizer().encode("Once upon a time", {});
  request.sampling.temperature = 0;
  request.stop.max_tokens = 24;
  request.on_tokens = [&](std::span<const Token> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  writer.submit(std::move(request));
  while (writer.step()) {
  }
  return tokens;
}

std::vector<Token> story_by_hand() {
  const Model model(story_path(), {});
  const auto backend = make_backend({.device = "cpu", .threads = 1});
  Session session(model, *backend, resolve_limits(small_limits(model), model.config()));
  return story_of(session, model);
}

TEST(Runtime, WritesWhatASessionMadeByHandWrites) {
  const std::vector<Token> expected = story_by_hand();
  ASSERT_FALSE(expected.empty());
  for (const int ranks : {1, 2}) {
    const Runtime runtime = open_runtime(small_options(ranks));
    EXPECT_EQ(runtime.threads, 2);
    EXPECT_EQ(runtime.followers != nullptr, ranks > 1);
    EXPECT_EQ(story_of(*runtime.session, *runtime.model), expected) << ranks << " ranks";
  }
}

TEST(Runtime, SharesAModelThatIsOpenAlready) {
  RuntimeOptions options = small_options();
  options.model = std::make_shared<const Model>(options.file, LoadOptions{});
  options.file = "not looked at";
  const Runtime one = open_runtime(options), other = open_runtime(options);
  EXPECT_EQ(one.model.get(), other.model.get());
  EXPECT_EQ(story_of(*one.session, *one.model), story_of(*other.session, *other.model));
}

TEST(Runtime, TakesWhatItsPlanSays) {
  const RuntimeOptions options = small_options();
  const Runtime runtime = open_runtime(options);
  const Model header(options.file, {.mode = LoadMode::map});
  const RuntimePlan plan = plan_runtime(header, small_limits(header), options.device);
  EXPECT_EQ(plan.limits.context, runtime.session->limits().context);
  EXPECT_EQ(plan.memory.total(), runtime.session->plan().total());
}

TEST(Runtime, ADraftModelChangesNoToken) {
  RuntimeOptions options = small_options();
  options.draft = story_path("int4-g128");
  options.limits = [](const Model& model) {
    RunLimits limits = small_limits(model);
    limits.output_tokens = reply_rows(limits.sequences, Drafting::by_model);
    return limits;
  };
  const Runtime runtime = open_runtime(options);
  ASSERT_NE(runtime.draft_session, nullptr);
  EXPECT_EQ(story_of(*runtime.session, *runtime.model, runtime.draft_session.get()),
            story_by_hand());
}

TEST(Runtime, NamesWhatCannotBeOpened) {
  RuntimeOptions options = small_options();
  options.file = "/nonexistent/model.leq";
  EXPECT_THROW(open_runtime(options), Error);
  options = small_options();
  options.device.device = "toaster";
  test::expect_error([&] { open_runtime(options); }, {"toaster"}, ErrorKind::bad_setting);
}

// Numbers of GPUs have at most eight digits; there is none with so large a number.
TEST(Devices, AreNumbersOrTheStartOfAUuid) {
  const auto error_of = [](const char* device) {
    return test::error_of([&] { make_backend({.device = device}); });
  };
  for (const char* device : {"cuda:123456789", "cuda:x", "cuda:", "cuda:1x", "sim:0"}) {
    EXPECT_NE(error_of(device).find("expected cpu, cuda"), std::string::npos) << error_of(device);
  }
  for (const char* device : {"cuda:12345678", "cuda:GPU-none", "cuda:MIG-none"}) {
    EXPECT_EQ(error_of(device).find("expected cpu, cuda"), std::string::npos) << error_of(device);
    EXPECT_NE(error_of(device), "");
  }
}

TEST(RunLimits, KvTypesAreThoseThatAreGivenElseTheModels) {
  const Model model(story_path(), {});
  RunLimits limits;
  choose_kv_types({}, KvType::int8, model, limits);
  EXPECT_EQ(limits.key_type, default_kv_type(model.type()));
  EXPECT_EQ(limits.value_type, KvType::int8);
  EXPECT_EQ(beyond_measured(model, limits), "");  // it was made for no cache in particular
  EXPECT_EQ(reply_rows(3, Drafting::off), 3);
  EXPECT_EQ(reply_rows(3, Drafting::from_text), 3 + kMaxDraftTokens);
  EXPECT_GT(reply_rows(3, Drafting::by_model), reply_rows(3, Drafting::from_text));
}

// Waits for the replies of a call and returns their tokens by index.
std::vector<Token> wait_for(Mailbox& mailbox) {
  std::vector<Token> tokens;
  for (bool ended = false; !ended;) {
    for (const ReplyUpdate& update : mailbox.take(10)) {
      tokens.insert(tokens.end(), update.tokens.begin(), update.tokens.end());
      ended = ended || update.end.has_value();
    }
  }
  return tokens;
}

TEST(EngineThread, GivesEachThreadWhatItGetsAlone) {
  const Runtime runtime = open_runtime(small_options());
  EngineThread engine(*runtime.session, runtime.model->tokenizer(), {}, 64);
  const auto story = [&](std::size_t i) {
    constexpr const char* kBeginnings[] = {"Once", "The fox", "A little", "One day the"};
    EngineCall call;
    EngineRequest request;
    request.prompt = runtime.model->tokenizer().encode(kBeginnings[i % 4], {});
    request.sampling.temperature = 0.8f;
    request.sampling.seed = i;
    request.stop.max_tokens = 20;
    call.requests.push_back(std::move(request));
    const auto mailbox = call.mailbox;
    engine.submit(std::move(call));
    return wait_for(*mailbox);
  };
  constexpr std::size_t kThreads = 8;
  std::vector<std::vector<Token>> alone, together(kThreads);
  for (std::size_t i = 0; i < kThreads; ++i) alone.push_back(story(i));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { together[i] = story(i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  engine.close(60);
  EXPECT_TRUE(engine.drain());
  EXPECT_TRUE(engine.draining());
}

// The first step of a request is part of its time, although its status is published after it.
TEST(EngineThread, DrainsAndCancelsARequestInItsFirstStep) {
  const Runtime runtime = open_runtime(small_options());
  std::promise<void> begun, may_end;
  std::atomic<bool> is_first = true;
  EngineOptions options;
  options.check_step = [&] {
    if (!is_first.exchange(false)) {  // a reply that ended by itself could not be cancelled
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return;
    }
    begun.set_value();
    may_end.get_future().wait();
  };
  EngineThread engine(*runtime.session, runtime.model->tokenizer(), options, 64);
  EngineCall call;
  EngineRequest request;
  request.prompt = runtime.model->tokenizer().encode("Once upon a time", {});
  request.stop.max_tokens = 240;
  call.requests.push_back(std::move(request));
  const auto mailbox = call.mailbox;
  engine.submit(std::move(call));
  begun.get_future().wait();
  engine.close(0);
  EXPECT_FALSE(engine.drain());
  std::thread cancelling([&] { engine.cancel_all(); });
  may_end.set_value();
  cancelling.join();
  EXPECT_LT(wait_for(*mailbox).size(), 240u);
  EXPECT_EQ(engine.status().cancelled, 1);
}

TEST(EngineThread, EndsEveryReplyWithTheReasonWhenItsEngineFails) {
  const Runtime runtime = open_runtime(small_options());
  EngineOptions options;
  options.check_step = [] { throw std::bad_alloc(); };  // no Error, which would end its step alone
  EngineThread engine(*runtime.session, runtime.model->tokenizer(), options, 64);
  const auto call_of = [&](std::size_t replies) {
    EngineCall call;
    for (std::size_t i = 0; i < replies; ++i) {
      EngineRequest request;
      request.prompt = runtime.model->tokenizer().encode("Once upon a time", {});
      request.stop.max_tokens = 20;
      call.requests.push_back(std::move(request));
    }
    return call;
  };
  EngineCall call = call_of(3);  // two run, one waits
  const auto mailbox = call.mailbox;
  engine.submit(std::move(call));
  std::vector<std::string> errors(3);
  std::size_t ended = 0;
  for (int seconds = 0; seconds < 30 && ended < 3; ++seconds) {
    for (const ReplyUpdate& update : mailbox->take(1)) {
      if (!update.end) continue;
      ++ended;
      EXPECT_EQ(update.end->stopped, StopReason::failed);
      errors[update.reply] = update.end->error ? update.end->error->what() : "";
    }
  }
  EXPECT_EQ(errors, std::vector<std::string>(3, "out of memory"));
  test::expect_error([&] { engine.submit(call_of(1)); }, {"out of memory"}, ErrorKind::interrupted);
  EXPECT_EQ(engine.failure(), "out of memory");
  EXPECT_EQ(engine.status().running + engine.status().waiting, 0u);
  engine.cancel({0, 1});  // without effect
  engine.close(5);
  EXPECT_TRUE(engine.drain());
}

}  // namespace
}  // namespace leq::test
