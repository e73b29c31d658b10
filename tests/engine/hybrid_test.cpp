// Models with fixed-size states: a prompt that has a prefix in common with an earlier one continues
// from a state that was kept in memory or in a file. Replies must not depend on this.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_cache.h"
#include "models_fixture.h"
#include "reference/family_golden.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

constexpr const char* kModel = "models/qwen35-tiny";

class Hybrid : public testing::Test {
 protected:
  void open(const std::filesystem::path& folder, std::int64_t kept_states = 8,
            std::int64_t context = 1024, int sequences = 2) {
    model_ = std::make_unique<Model>(test::quantized(folder, "int8"), LoadOptions{});
    backend_ = make_backend({.device = "cpu", .threads = 2});
    RunLimits limits;
    limits.context = context;
    limits.sequences = sequences;
    limits.sequence_context = context;
    limits.batch_tokens = 64;
    limits.output_tokens = 32;
    limits.kept_states = kept_states;
    limits_ = resolve_limits(limits, model_->config());
  }

  std::unique_ptr<Session> session() const {
    return std::make_unique<Session>(*model_, *backend_, limits_);
  }

  EngineReply reply(Engine& engine, const std::vector<Token>& prompt, std::int64_t tokens,
                    std::vector<Token> expected = {}) const {
    EngineReply ended;
    EngineRequest request;
    request.prompt = prompt;
    request.sampling.temperature = 0;
    request.stop.max_tokens = tokens;
    request.expected = std::move(expected);
    request.on_end = [&](const EngineReply& one) { ended = one; };
    engine.submit(std::move(request));
    while (engine.step()) {
    }
    EXPECT_FALSE(ended.error) << (ended.error ? ended.error->what() : "");
    return ended;
  }

  std::vector<Token> tokens_of(const std::string& text) const {
    return model_->tokenizer().encode(text, {});
  }
  static std::string user(const std::string& text) {
    return "<|im_start|>user\n" + text + "<|im_end|>\n";
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Backend> backend_;
  RunLimits limits_;
};

const std::string kStory =
    "Once upon a time there was a king who had a daughter, and the daughter had a golden ball that "
    "she loved more than all else in the castle of her father, which stood by the dark forest.";
const std::string kAnswers = "<|im_start|>assistant\n";

TEST_F(Hybrid, ASecondTurnFeedsWhatIsNew) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  const auto first_session = session(), second_session = session();
  Engine engine(*first_session, model_->tokenizer(), {});
  Engine fresh(*second_session, model_->tokenizer(), {.reuse_prefixes = false});
  const auto first = tokens_of(user(kStory) + kAnswers);
  const EngineReply answer = reply(engine, first, 20);
  EXPECT_EQ(answer.cached_tokens, 0);
  // The history has all tokens of the reply; all except the last drawn one were fed.
  std::vector<Token> whole = first;
  whole.insert(whole.end(), answer.tokens.begin(), answer.tokens.end());
  const auto question = tokens_of("<|im_end|>\n" + user("And then?") + kAnswers);
  whole.insert(whole.end(), question.begin(), question.end());
  const EngineReply next = reply(engine, whole, 20);
  EXPECT_EQ(next.cached_tokens, std::ssize(first) + std::ssize(answer.tokens) - 1);
  EXPECT_EQ(next.tokens, reply(fresh, whole, 20).tokens);
  // A history with another reply continues from the state where the first reply began.
  const auto other =
      tokens_of(user(kStory) + kAnswers + "No.<|im_end|>\n" + user("Why?") + kAnswers);
  const EngineReply changed = reply(engine, other, 20);
  EXPECT_EQ(changed.cached_tokens, std::ssize(tokens_of(user(kStory))));
  EXPECT_EQ(changed.tokens, reply(fresh, other, 20).tokens);
  // The first prompt is repeated.
  EXPECT_EQ(reply(engine, first, 20).tokens, answer.tokens);
}

std::string system(const std::string& text) {
  return "<|im_start|>system\n" + text + "<|im_end|>\n";
}

TEST_F(Hybrid, AnotherChatBeginsAfterTheSystemMessage) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder, 4);
  const auto first_session = session(), second_session = session();
  Engine engine(*first_session, model_->tokenizer(), {});
  Engine fresh(*second_session, model_->tokenizer(), {.reuse_prefixes = false});
  const auto shared = std::ssize(tokens_of(system(kStory)));
  EXPECT_NE(shared % kPageTokens, 0);
  int chat = 0;
  for (const char* question : {"Who?", "When was that?", "Why did she?", "And where?", "Who?"}) {
    const auto prompt = tokens_of(system(kStory) + user(question) + kAnswers);
    const EngineReply got = reply(engine, prompt, 12);
    // The last prompt repeats the first, whose own state was evicted in favour of later prompts.
    EXPECT_EQ(got.cached_tokens, chat++ == 0 ? 0 : shared) << question;
    EXPECT_EQ(got.tokens, reply(fresh, prompt, 12).tokens);
  }
}

TEST_F(Hybrid, ABeginningThatTwoTextsShareIsKeptForTheThird) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  const auto first_session = session(), second_session = session();
  Engine engine(*first_session, model_->tokenizer(), {});
  Engine fresh(*second_session, model_->tokenizer(), {.reuse_prefixes = false});
  std::vector<std::vector<Token>> prompts;
  std::vector<std::int64_t> cached;
  for (const char* end : {" One came.", " She wept.", " He ran.", " They sang."}) {
    prompts.push_back(tokens_of(kStory + kStory + end));
    const EngineReply got = reply(engine, prompts.back(), 12);
    cached.push_back(got.cached_tokens);
    EXPECT_EQ(got.tokens, reply(fresh, prompts.back(), 12).tokens);
  }
  const std::int64_t alike = std::ranges::mismatch(prompts[0], prompts[1]).in1 - prompts[0].begin();
  EXPECT_EQ(cached, (std::vector<std::int64_t>{0, 0, alike, alike}));
}

TEST_F(Hybrid, RejectedDraftsLeaveNoTrace) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  for (const std::int64_t kept : {0, 8}) {
    open(folder, kept);
    const auto drafting = session(), plain = session();
    Engine engine(*drafting, model_->tokenizer(), {});
    Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false, .speculate = false});
    const auto prompt = tokens_of(user(kStory) + kAnswers);
    const EngineReply want = reply(fresh, prompt, 40);
    std::vector<Token> expected = want.tokens;
    for (std::size_t i = 9; i < expected.size(); i += 10) expected[i] = 5;  // occasionally wrong
    const EngineReply got = reply(engine, prompt, 40, expected);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_GT(got.accepted_tokens, 0);
    EXPECT_LT(got.accepted_tokens, got.draft_tokens);
  }
}

TEST_F(Hybrid, SavedPromptsGoOnWhereTheyEnded) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  const auto writing = session(), reading = session(), plain = session();
  Engine writer(*writing, model_->tokenizer(), {});
  Engine reader(*reading, model_->tokenizer(), {});
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
  const auto prompt = tokens_of(kStory);
  const EngineReply answer = reply(writer, prompt, 12);
  const SavedPrefix saved = writer.save_prefix(prompt);
  EXPECT_EQ(std::ssize(saved.tokens), std::ssize(prompt) - 1) << "at the prompt's mark";
  ASSERT_TRUE(reader.load_prefix(saved, "saved"));
  const EngineReply again = reply(reader, prompt, 12);
  EXPECT_EQ(again.cached_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(again.tokens, answer.tokens);
  EXPECT_EQ(answer.tokens, reply(fresh, prompt, 12).tokens);
}

// The same with the states of short convolutions.
TEST_F(Hybrid, ShortConvolutionsContinueFromKeptAndSavedStates) {
  open(test::family_folder("lfm2"), 8, 256);
  const auto first = session(), drafting = session(), reading = session(), plain = session();
  Engine engine(*first, model_->tokenizer(), {});
  Engine drafter(*drafting, model_->tokenizer(), {});
  Engine reader(*reading, model_->tokenizer(), {});
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false, .speculate = false});
  std::vector<Token> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back((i * i * 7 + i * 13 + i / 5) % 94);
  const EngineReply want = reply(fresh, prompt, 40);
  EXPECT_EQ(reply(engine, prompt, 40).tokens, want.tokens);

  std::vector<Token> wrong = want.tokens;
  for (std::size_t i = 9; i < wrong.size(); i += 10) wrong[i] = (wrong[i] + 1) % 94;
  const EngineReply drafted = reply(drafter, prompt, 40, wrong);
  EXPECT_EQ(drafted.tokens, want.tokens);
  EXPECT_GT(drafted.accepted_tokens, 0);
  EXPECT_LT(drafted.accepted_tokens, drafted.draft_tokens);

  ASSERT_TRUE(reader.load_prefix(engine.save_prefix(prompt), "saved"));
  const EngineReply again = reply(reader, prompt, 40);
  EXPECT_EQ(again.cached_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(again.tokens, want.tokens);

  std::vector<Token> longer = prompt;
  longer.insert(longer.end(), want.tokens.begin(), want.tokens.end());
  longer.insert(longer.end(), {5, 6, 7});
  const EngineReply next = reply(engine, longer, 20);
  EXPECT_EQ(next.cached_tokens, std::ssize(prompt) + std::ssize(want.tokens) - 1);
  EXPECT_EQ(next.tokens, reply(fresh, longer, 20).tokens);
}

// A mark inside the last page of the only sequence: there is no page to which it could be copied.
TEST_F(Hybrid, PromptsMayFillTheContextOfOneSequence) {
  for (const std::int64_t context : {64, 128, 192}) {
    open(test::family_folder("lfm2"), 8, context, 1);
    const auto first = session(), plain = session();
    Engine engine(*first, model_->tokenizer(), {});
    Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
    for (std::int64_t length = context - 63; length < context; ++length) {
      std::vector<Token> prompt;
      // Texts of the same parity differ near their ends, and one in three is repeated.
      for (std::int64_t i = 0; i + 10 < length; ++i) {
        prompt.push_back(static_cast<Token>((i * i * 7 + i * (13 + length % 2)) % 94));
      }
      while (std::ssize(prompt) < length) prompt.push_back(static_cast<Token>(length % 94));
      const auto want = reply(fresh, prompt, 6).tokens;
      EXPECT_EQ(reply(engine, prompt, 6).tokens, want) << context << ", " << length;
      if (length % 3 != 0) continue;
      EXPECT_EQ(reply(engine, prompt, 6).tokens, want) << context << ", again " << length;
    }
  }
}

TEST_F(Hybrid, AChatMayFillTheContextOfOneSequence) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder, 8, 256, 1);
  const auto first = session(), plain = session();
  Engine engine(*first, model_->tokenizer(), {});
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
  const auto question = tokens_of("<|im_end|>\n" + user("And?") + kAnswers);
  std::vector<Token> text = tokens_of(system(kStory) + user("Who?") + kAnswers);
  int turns = 0;
  for (; std::ssize(text) < limits_.context; ++turns) {
    const EngineReply got = reply(engine, text, 12);
    EXPECT_EQ(got.tokens, reply(fresh, text, 12).tokens) << text.size();
    text.insert(text.end(), got.tokens.begin(), got.tokens.end());
    text.insert(text.end(), question.begin(), question.end());
  }
  EXPECT_GT(turns, 2);
}

// A text with its reply is saved; the prompt alone, an edited turn and another chat feed only what
// is new, as in the process that saved it.
TEST_F(Hybrid, SavedTextsHaveTheStatesInside) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  const auto writing = session(), plain = session();
  Engine writer(*writing, model_->tokenizer(), {});
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
  const std::string begin = system(kStory) + user("Who?");
  const auto prompt = tokens_of(begin + kAnswers);
  std::vector<Token> text = prompt;
  const EngineReply answer = reply(writer, prompt, 20);
  text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
  const SavedPrefix saved = writer.save_prefix(text);
  EXPECT_EQ(std::ssize(saved.tokens), std::ssize(text) - 1);
  EXPECT_GE(saved.states.size(), 2u);
  struct Next {
    std::string text;
    std::int64_t cached;
  };
  const auto of_system = std::ssize(tokens_of(system(kStory))),
             of_begin = std::ssize(tokens_of(begin));
  for (const Next& next :
       {Next{begin + kAnswers, of_begin}, Next{begin + kAnswers + "No.", of_begin},
        Next{system(kStory) + user("Why?") + kAnswers, of_system}}) {
    const auto reading = session();
    Engine reader(*reading, model_->tokenizer(), {});
    ASSERT_TRUE(reader.load_prefix(saved, "saved"));
    ASSERT_TRUE(reader.load_prefix(saved, "again")) << "what is known changes nothing";
    const auto tokens = tokens_of(next.text);
    const EngineReply got = reply(reader, tokens, 12);
    EXPECT_EQ(got.cached_tokens, next.cached) << next.text;
    EXPECT_EQ(got.tokens, reply(fresh, tokens, 12).tokens) << next.text;
    const EngineReply whole = reply(reader, text, 12);
    EXPECT_EQ(whole.cached_tokens, std::ssize(text) - 1);
    EXPECT_EQ(whole.tokens, reply(fresh, text, 12).tokens);
    SavedPrefix bad = saved;
    bad.states[0].bytes.pop_back();
    EXPECT_THROW(reader.load_prefix(bad, "bad"), Error);
    bad = saved;
    std::fill_n(bad.states[0].bytes.begin(), 4, std::byte{0xff});
    EXPECT_THROW(reader.load_prefix(bad, "bad"), Error);
  }
}

// Only as many states are kept as the reader has memory for: the end and the newest.
TEST_F(Hybrid, SavedStatesThatDoNotFitAreLeftOut) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  const auto prompt = tokens_of(system(kStory) + user("Who?") + kAnswers);
  EngineReply answer;
  SavedPrefix saved;
  {
    const auto writing = session();
    Engine writer(*writing, model_->tokenizer(), {});
    answer = reply(writer, prompt, 20);
    std::vector<Token> text = prompt;
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    saved = writer.save_prefix(text);
  }
  for (const std::int64_t kept : {0, 1, 2, 3}) {
    open(folder, kept);
    const auto reading = session();
    Engine reader(*reading, model_->tokenizer(), {});
    ASSERT_TRUE(reader.load_prefix(saved, "saved")) << kept;
    const EngineReply again = reply(reader, prompt, 20);
    EXPECT_EQ(again.tokens, answer.tokens) << kept;
    if (kept >= 2) {
      EXPECT_GT(again.cached_tokens, 0) << kept;
    }
  }
}

TEST_F(Hybrid, StatesThatDoNotFitGoAndTheLastOnesStay) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder, 2);
  const auto holding = session(), plain = session();
  Engine engine(*holding, model_->tokenizer(), {});
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
  std::vector<Token> prompt, first;
  for (const char* name : {"fox", "hen", "cat", "dog", "owl", "bee"}) {
    prompt = tokens_of(std::string("A tale of the ") + name + ". " + kStory);
    if (first.empty()) first = prompt;
    EXPECT_EQ(reply(engine, prompt, 6).tokens, reply(fresh, prompt, 6).tokens);
  }
  EXPECT_EQ(reply(engine, prompt, 6).cached_tokens, std::ssize(prompt) - 1);
  EXPECT_EQ(reply(engine, first, 6).cached_tokens, 0);
}

TEST(StateMarks, LieAtIntervalsAndBeforeTheReply) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  const Model model(test::quantized(folder, "int8"), {});
  const auto marks = [&](const std::string& text) {
    return state_marks(model.tokenizer().encode(text, {}), model.tokenizer(), 8);
  };
  const auto begun = model.tokenizer().encode("<|im_start|>user\nA fox.<|im_end|>\n", {});
  EXPECT_EQ(marks("<|im_start|>user\nA fox.<|im_end|>\n<|im_start|>assistant\n"),
            std::vector<std::int64_t>{std::ssize(begun)});
  const auto plain = model.tokenizer().encode("A fox and a hen", {});
  EXPECT_EQ(state_marks(plain, model.tokenizer(), 8),
            std::vector<std::int64_t>{std::ssize(plain) - 1});
  const std::vector<Token> longer(10000, plain[0]);
  EXPECT_EQ(state_marks(longer, model.tokenizer(), 8),
            (std::vector<std::int64_t>{4096, 8192, 9999}));
  EXPECT_EQ(state_marks(std::vector<Token>(1800, plain[0]), model.tokenizer(), 8),
            (std::vector<std::int64_t>{512, 1024, 1536, 1799}));
  EXPECT_EQ(next_mark(std::vector<std::int64_t>{5, 9}, 5), 9);
  EXPECT_EQ(next_mark(std::vector<std::int64_t>{5, 9}, 9), 0);
  EXPECT_TRUE(state_marks(std::vector<Token>{3}, model.tokenizer(), 8).empty());
}

TEST(StateMarks, LieAtEndsOfMessagesAndTheSystemMessageStays) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  const Model model(test::quantized(folder, "int8"), {});
  const Token begins = model.tokenizer().encode("<|im_start|>", {}).at(0);
  const Token word = model.tokenizer().encode("fox", {}).at(0);
  std::vector<Token> prompt;
  std::vector<std::int64_t> ends;
  for (const std::size_t length : {100, 30, 900, 600, 3000, 20}) {
    prompt.push_back(begins);
    prompt.insert(prompt.end(), length - 1, word);
    ends.push_back(std::ssize(prompt));
  }
  prompt.push_back(begins);
  const auto marks = [&](std::int64_t most) {
    return state_marks(prompt, model.tokenizer(), most);
  };
  // Marks at ends of messages of 30 and 20 tokens are too close to others; only the last is kept.
  EXPECT_EQ(marks(8), (std::vector<std::int64_t>{100, 1030, 1630, 2048, 4096, 4630, 4650}));
  EXPECT_EQ(marks(4), (std::vector<std::int64_t>{100, 4096, 4630, 4650}));
  EXPECT_EQ(marks(0), (std::vector<std::int64_t>{100, 4650}));
}

// There is memory for the state of one text at a time: the step of both fails, each of them alone
// does not. (docs/engine.md, Requests: "If a whole step fails, each request's part is computed
// alone".)
TEST_F(Hybrid, AStepThatFailsIsComputedPartByPart) {
  open(test::family_folder("lfm2"), 0, 256);
  const auto plain = session();
  Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false, .speculate = false});
  for (const std::int64_t free : {1, 0}) {
    const auto scarce = session();
    Engine engine(*scarce, model_->tokenizer(), {.reuse_prefixes = false, .speculate = false});
    FixedStates& states = *scarce->state().fixed();
    while (states.free_states() > free) {  // states of no request
      states.hold(states.replace(1, 1));
      states.drop(1);
    }
    std::vector<EngineReply> replies(2);
    for (Token i = 0; i < 2; ++i) {
      EngineRequest request;
      request.prompt = {3, 4, 5 + i};
      request.sampling.temperature = 0;
      request.stop.max_tokens = 1;
      request.on_end = [&replies, i](const EngineReply& ended) {
        replies[static_cast<std::size_t>(i)] = ended;
      };
      engine.submit(std::move(request));
    }
    EXPECT_TRUE(engine.step());
    EXPECT_FALSE(engine.step());
    for (Token i = 0; i < 2; ++i) {
      const EngineReply& got = replies[static_cast<std::size_t>(i)];
      EXPECT_EQ(got.error.has_value(), free == 0) << i;
      if (free > 0) {
        EXPECT_EQ(got.tokens, reply(fresh, {3, 4, 5 + i}, 1).tokens) << i;
      }
    }
  }
}

// Of more states than fit, the first one stays too: usually the end of a system message, where
// other chats begin.
TEST_F(Hybrid, OfManySavedStatesTheFirstAndTheLastStay) {
  LEQ_SHARED_OR_SKIP(folder, kModel);
  open(folder);
  std::string question;
  while (std::ssize(tokens_of(question)) < 600) question += kStory + " ";
  const std::string begin = system(kStory) + user(question);
  const auto prompt = tokens_of(begin + kAnswers), other = tokens_of(system(kStory) + user("Why?"));
  ASSERT_LT(std::ssize(prompt), 1000);
  SavedPrefix saved;
  {
    const auto writing = session();
    Engine writer(*writing, model_->tokenizer(), {});
    std::vector<Token> text = prompt;
    const EngineReply answer = reply(writer, prompt, 10);
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    saved = writer.save_prefix(text);
  }
  const std::vector<std::int64_t> ends = {std::ssize(tokens_of(system(kStory))), 512,
                                          std::ssize(tokens_of(begin))};
  ASSERT_EQ(saved.states.size(), ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(saved.states[i].position, ends[i]);
  // Beside the state at the end of the text there is memory for one or two.
  for (const std::int64_t kept : {2, 3}) {
    open(folder, kept);
    for (const auto& [next, cached] :
         {std::pair{prompt, ends[2]}, {other, kept > 2 ? ends[0] : 0}}) {
      const auto reading = session(), plain = session();
      Engine reader(*reading, model_->tokenizer(), {});
      Engine fresh(*plain, model_->tokenizer(), {.reuse_prefixes = false});
      ASSERT_TRUE(reader.load_prefix(saved, "saved"));
      const EngineReply got = reply(reader, next, 6);
      EXPECT_EQ(got.cached_tokens, cached) << kept;
      EXPECT_EQ(got.tokens, reply(fresh, next, 6).tokens) << kept;
    }
  }
}

}  // namespace
}  // namespace leq
