// Tests conversations: turns, regenerated replies, the KV cache across turns, and refused prompts.
#include "engine/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "errors.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"
#include "temporary_folder.h"

namespace leq {
namespace {

const std::atomic<bool> kNotInterrupted = false;
const TextSink kNoSink = [](std::string_view) {};

// A small chat model with a conversation.
struct Chat {
  Chat(const std::filesystem::path& folder, std::int64_t context = 0, std::int64_t max_tokens = 24)
      : backend(make_backend({.device = "cpu", .threads = 1})),
        model(test::quantized(folder, "int8"), {}),
        run(model, *backend, limits(model, context)),
        generator(run, model.tokenizer(), {.sampling = settings()}),
        format(ChatTemplate::of_model(model.chat_template(), "test")),
        session(generator, model.tokenizer(), format, options(model, max_tokens)) {}

  static RunLimits limits(const Model& model, std::int64_t context) {
    RunLimits limits;
    limits.context = context;
    return resolve_limits(limits, model.config());
  }
  static SamplingSettings settings() {
    SamplingSettings settings;
    settings.seed = 5;
    return settings;
  }
  static ChatSessionOptions options(const Model& model, std::int64_t max_tokens) {
    ChatSessionOptions options;
    options.rendering = chat_options(model.tokenizer());
    options.stop.end_tokens = model.generation().end_tokens;
    options.stop.max_tokens = max_tokens;
    return options;
  }
  FinishedReply say(const std::string& text) { return session.say(text, kNoSink, kNotInterrupted); }
  FinishedReply regenerate() { return session.regenerate(kNoSink, kNotInterrupted); }

  std::unique_ptr<Backend> backend;
  Model model;
  Session run;
  Generator generator;
  ChatTemplate format;
  ChatSession session;
};

class ChatModels : public testing::TestWithParam<const char*> {};

TEST_P(ChatModels, ATurnKeepsTheCacheAndSaysWhatAFreshRunSays) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  Chat chat(folder);
  chat.say("Tell me a story about a fox.");
  const ChatState after_first = chat.session.state();
  ASSERT_EQ(after_first.messages.size(), 2u);
  const FinishedReply second = chat.say("And then?");
  EXPECT_GT(second.cached_tokens, 5);
  Chat fresh(folder);
  fresh.session.restore(after_first);
  const FinishedReply alone = fresh.say("And then?");
  EXPECT_EQ(alone.cached_tokens, 0);
  EXPECT_EQ(second.tokens, alone.tokens);
  EXPECT_EQ(chat.session.state().replies, 2u);
}

TEST_P(ChatModels, ARegeneratedReplyIsAnotherAndRepeatable) {
  LEQ_SHARED_OR_SKIP(folder, std::string("models/") + GetParam());
  const auto replies = [&] {
    Chat chat(folder);
    std::vector<std::string> texts = {chat.say("Tell me a story about a king.").text};
    texts.push_back(chat.regenerate().text);
    texts.push_back(chat.regenerate().text);
    EXPECT_EQ(chat.session.state().messages.size(), 2u);
    EXPECT_EQ(chat.session.state().messages.back().content, texts.back());
    return texts;
  };
  const std::vector<std::string> first = replies();
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[1], first[2]);
  EXPECT_EQ(replies(), first);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatModels,
                         testing::Values("storyteller", "mistral-tiny", "qwen2-tiny", "qwen3-tiny",
                                         "qwen35-tiny", "qwen3moe-tiny"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ChatSession, ResetBeginsTheSameConversationAgain) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder);
  chat.session.set_system("Tell fairy tales.");
  const std::string first = chat.say("A story, please.").text;
  chat.say("More.");
  chat.session.reset();
  EXPECT_EQ(chat.session.system(), "Tell fairy tales.");
  EXPECT_EQ(chat.session.state().messages.size(), 1u);
  EXPECT_EQ(chat.say("A story, please.").text, first);
}

TEST(ChatSession, TheSystemPromptIsPartOfThePrompt) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  Chat chat(folder);
  const FinishedReply without = chat.say("Hello!");
  chat.session.reset();
  chat.session.set_system("You are a storyteller.");
  const FinishedReply with = chat.say("Hello!");
  EXPECT_GT(with.cached_tokens + with.fed_tokens, without.cached_tokens + without.fed_tokens);
  chat.session.set_system("");
  EXPECT_EQ(chat.session.system(), "");
  EXPECT_EQ(chat.session.state().messages.size(), 2u);
}

TEST(ChatSession, ASystemPromptThatTheTemplateRefusesChangesNothing) {
  LEQ_SHARED_OR_SKIP(folder, "models/mistral-tiny");  // its template has no system prompt
  Chat chat(folder);
  chat.say("Hello!");
  EXPECT_THROW(chat.session.set_system("You are a storyteller."), Error);
  EXPECT_EQ(chat.session.system(), "");
  EXPECT_EQ(chat.session.state().messages.size(), 2u);
}

TEST(ChatSession, AFullContextLeavesTheConversationAsItWas) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder, 64);
  chat.say("Hello!");
  const ChatState before = chat.session.state();
  std::string longer;
  for (int i = 0; i < 40; ++i) longer += "once more ";
  const auto error = test::thrown([&] { chat.say(longer); });
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(std::string(error->what()).find("64"), std::string::npos) << error->what();
  EXPECT_NE(std::string(error->what()).find("larger context"), std::string::npos) << error->what();
  EXPECT_EQ(error->setting(), "context");
  EXPECT_EQ(chat.session.state().messages.size(), before.messages.size());
  EXPECT_EQ(chat.session.state().replies, before.replies);
}

// The oracle is a new chat that never had the messages left out.
TEST(ChatSession, AFullContextLeavesOutTheOldestTurns) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder, 128, 12);
  chat.session.set_system("Tell fairy tales.");
  std::vector<std::size_t> told;
  chat.session.options().on_left_out = [&](std::size_t messages) { told.push_back(messages); };
  ChatState before;
  FinishedReply reply;
  for (int turn = 0; turn < 12 && told.empty(); ++turn) {
    before = chat.session.state();
    reply = chat.say("Tell me the story number " + std::to_string(turn) + ", please.");
  }
  ASSERT_EQ(told.size(), 1u);
  const ChatState& after = chat.session.state();
  EXPECT_EQ(after.left_out, told[0]);
  EXPECT_EQ(after.messages.size(), before.messages.size() + 2);  // none is forgotten
  ASSERT_EQ(after.messages[1 + told[0]].role, "user");
  if (reply.tokens.size() + reply.fed_tokens + reply.cached_tokens > 128) return;
  ChatState kept = before;
  kept.messages.erase(kept.messages.begin() + 1,
                      kept.messages.begin() + 1 + static_cast<std::ptrdiff_t>(told[0]));
  kept.left_out = 0;
  Chat fresh(folder, 128, 12);
  fresh.session.restore(kept);
  const FinishedReply alone = fresh.say(after.messages[after.messages.size() - 2].content);
  EXPECT_EQ(reply.tokens, alone.tokens);
  EXPECT_LT(2 * (alone.fed_tokens + alone.cached_tokens), 128 + 2);
}

// A reply that fills the context goes on after the start was left out; the two parts are those of
// the prompts that this test renders itself.
TEST(ChatSession, AReplyGoesOnWhenTheContextIsFull) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder, 155, 100);
  ASSERT_EQ(chat.say("Hello!").stopped, StopReason::token_limit);
  const ChatState before = chat.session.state();
  std::size_t told = 0;
  chat.session.options().on_left_out = [&](std::size_t messages) { told = messages; };
  const FinishedReply reply = chat.say("More!");
  EXPECT_EQ(told, 2u);
  EXPECT_NE(reply.stopped, StopReason::context_full);
  EXPECT_EQ(chat.session.state().replies, before.replies + 2);

  Chat other(folder, 155, 100);
  const auto prompt = [&](std::vector<ChatMessage> messages) {
    return other.model.tokenizer().encode_parts(
        other.format.render(messages, chat_options(other.model.tokenizer())));
  };
  EngineRequest request;
  request.prompt = prompt({before.messages[0], before.messages[1], {"user", "More!"}});
  request.stop = Chat::options(other.model, -1).stop;
  other.format.add_stops(other.model.tokenizer(), request.stop);
  request.reply = before.replies;
  const std::vector<Token> first = other.generator.generate(request).tokens;
  ASSERT_LT(first.size(), 100u);
  request.prompt = prompt({{"user", "More!"}});
  request.prompt.insert(request.prompt.end(), first.begin(), first.end());
  request.stop.max_tokens = 100 - std::ssize(first);
  request.reply = before.replies + 1;
  std::vector<Token> all = first;
  const std::vector<Token> rest = other.generator.generate(request).tokens;
  all.insert(all.end(), rest.begin(), rest.end());
  EXPECT_EQ(reply.tokens, all);
}

TEST(ChatSession, AReplyEndsWithItsFormat) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  Chat chat(folder);
  SamplingSettings settings = Chat::settings();
  settings.logit_bias = {{chat.model.tokenizer().eos(), 600}};
  chat.generator.set_sampling(settings);
  const ChatTemplate format = ChatTemplate::by_name("mistral-v3");  // ends with the end of text
  ChatSessionOptions options = Chat::options(chat.model, 24);
  options.stop.end_tokens.clear();
  ChatSession session(chat.generator, chat.model.tokenizer(), format, options);
  EXPECT_EQ(session.say("Hello", kNoSink, kNotInterrupted).stopped, StopReason::end_token);
}

// The reply consists of two tokens in turns that are one character together: with one of the two
// contexts, the context is full between them. The stop string is the whole reply.
TEST(ChatSession, ACharacterAndAStopStringGoOnWhenTheContextIsFull) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  std::string whole;
  for (int i = 0; i < 25; ++i) whole += "\u00e9";
  for (const std::int64_t context : {190, 191}) {
    for (const bool stops : {false, true}) {
      Chat chat(folder, context, 50);
      SamplingSettings settings = Chat::settings();
      settings.temperature = 0;
      settings.penalties_when_greedy = true;
      settings.repeat_last_n = 1;
      settings.frequency_penalty = 1000;
      settings.logit_bias = {{198, 600}, {172, 500}};  // the two bytes
      chat.generator.set_sampling(settings);
      if (stops) chat.session.options().stop.strings = {whole};
      FinishedReply reply;
      std::string shown;
      std::uint32_t parts = 1;
      for (int turn = 0; turn < 30 && parts == 1; ++turn) {
        shown.clear();
        const std::uint32_t before = chat.session.state().replies;
        reply = chat.session.say(
            "A line.", [&](std::string_view text) { shown += text; }, kNotInterrupted);
        parts = chat.session.state().replies - before;
      }
      ASSERT_EQ(parts, 2u) << context;
      EXPECT_EQ(reply.stopped, stops ? StopReason::stop_string : StopReason::token_limit);
      EXPECT_EQ(reply.text, stops ? "" : whole) << context;
      EXPECT_EQ(shown, reply.text) << context;
      EXPECT_EQ(reply.tokens.size(), 50u);
    }
  }
}

TEST(ChatSession, ThereIsNothingToRegenerateAtTheStart) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder);
  EXPECT_THROW(chat.regenerate(), Error);
  chat.session.set_system("Be brief.");
  EXPECT_THROW(chat.regenerate(), Error);
}

TEST(ChatSession, AnInterruptBeforeTheFirstTokenTakesTheMessageBack) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder);
  const std::atomic<bool> interrupted = true;
  const FinishedReply reply = chat.session.say("Hello!", kNoSink, interrupted);
  EXPECT_EQ(reply.stopped, StopReason::interrupted);
  EXPECT_TRUE(chat.session.state().messages.empty());
}

TEST(ChatSession, TheFirstTextHasNoWhiteSpaceInFront) {
  LEQ_SHARED_OR_SKIP(folder, "models/storyteller");
  Chat chat(folder);
  std::string shown;
  const FinishedReply reply = chat.session.say(
      "Tell me a story.", [&](std::string_view text) { shown += text; }, kNotInterrupted);
  ASSERT_FALSE(shown.empty());
  EXPECT_NE(shown.front(), ' ');
  EXPECT_TRUE(reply.text.ends_with(shown));
}

// The checkpoint with three of harmony's marks as its special tokens.
std::filesystem::path with_channels(const std::filesystem::path& folder,
                                    const test::TemporaryFolder& scratch) {
  const auto copy = scratch.path() / "qwen2-channels";
  std::filesystem::copy(folder, copy);
  const auto file = copy / "tokenizer_config.json";
  std::string text = read_file(file, 1 << 20);
  text = replace_all(text, "<|im_start|>", "<|channel|>");
  text = replace_all(text, "<|im_end|>", "<|message|>");
  scratch.write("qwen2-channels/tokenizer_config.json",
                replace_all(text, "<|endoftext|>", "<|end|>"));
  return copy;
}

TEST(ChatSession, OfAReplyWithChannelsTheAnalysisIsShownAndNotKept) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  const test::TemporaryFolder scratch;
  Chat chat(with_channels(folder, scratch), 0, 200);
  const Token channel = chat.model.tokenizer().special_id("<|channel|>").value();
  SamplingSettings settings = Chat::settings();
  settings.logit_bias = {{channel, 100}};
  chat.generator.set_sampling(settings);
  const std::string end = "<|end|><|start|>assistant", analysis = "<|channel|>analysis<|message|>",
                    final = "<|channel|>final<|message|>";
  const std::string thought = "<think>\nHm. < 3\n</think>\n\n";
  const std::vector<std::array<std::string, 3>> replies = {
      {analysis + "Hm. < 3" + end + final + "Yes.", thought + "Yes.", "Yes."},
      {analysis + "Hm. < 3" + end + "<|channel|>commentary<|message|>One." + end + final + "Two.",
       thought + "One.\nTwo.", "One.\nTwo."},
      {final + "Yes.", "Yes.", "Yes."},
      {"Yes.", "Yes.", "Yes."},
      {analysis + "Hm.", "<think>\nHm.", ""}};
  for (const auto& [written, seen, kept] : replies) {
    ChatSessionOptions& options = chat.session.options();
    options.stop.end_tokens = {};  // the grammar ends the reply
    options.grammar = Grammar::from_gbnf("root ::= " + Json(written).dump(), "grammar");
    for (const bool channels : {true, false}) {
      options.style = channels ? reply_style(analysis) : ReplyStyle();
      std::string shown;
      const FinishedReply reply = chat.session.say(
          "Well?", [&](std::string_view text) { shown += text; }, kNotInterrupted);
      EXPECT_EQ(shown, channels ? seen : written);
      EXPECT_EQ(chat.session.state().messages.back().content, channels ? kept : written);
      const bool marked = std::ranges::find(reply.tokens, channel) != reply.tokens.end();
      EXPECT_EQ(marked, channels && written.starts_with("<|channel|>")) << written;
    }
  }
}

TEST(ChatSession, RestoreRefusesMessagesOutOfOrder) {
  LEQ_SHARED_OR_SKIP(folder, "models/mistral-tiny");
  Chat chat(folder);
  EXPECT_THROW(chat.session.restore({{{"assistant", "Hi"}, {"assistant", "Ho"}}, 1}), Error);
  EXPECT_TRUE(chat.session.state().messages.empty());
}

TEST(ChatSession, AnInterruptBeforeTheFirstTokenChangesNoLaterReply) {
  LEQ_SHARED_OR_SKIP(folder, "models/qwen2-tiny");
  Chat chat(folder), undisturbed(folder);
  const ChatState before = chat.session.state();
  const std::atomic<bool> interrupted = true;
  (void)chat.session.say("Hello!", kNoSink, interrupted);
  EXPECT_EQ(chat.session.state(), before);
  EXPECT_EQ(chat.say("Hello!").tokens, undisturbed.say("Hello!").tokens);
}

}  // namespace
}  // namespace leq
