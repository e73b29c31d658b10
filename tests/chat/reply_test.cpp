// A reply driven by the test: text, limits and ends in edge cases, draws, and copies of replies.
#include "chat/reply.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/random.h"
#include "tokenizer/small_specs.h"

namespace leq {
namespace {

constexpr std::int64_t kContext = 100;

// Token n is the byte n; these tokens are followed by a few merges and "<end>".
const Tokenizer& bytes() {
  static const Tokenizer kTokenizer(test::small_byte_spec());
  return kTokenizer;
}

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Sampler sampler(const SamplingSettings& settings = {}) {
  return Sampler(settings, bytes().size(), {});
}

Reply reply_to(const std::string& prompt, ReplyRules rules) {
  if (rules.context == 0) rules.context = kContext;
  return Reply(bytes(), tokens_of(prompt), sampler(), std::move(rules));
}

ReplyRules at_most(std::int64_t tokens) { return {.stop = {.max_tokens = tokens}}; }

// Adds bytes until the reply stops; returns the pieces, including empty ones, and the rest.
std::vector<std::string> write(Reply& reply, const std::string& text) {
  std::vector<std::string> pieces;
  for (const Token token : tokens_of(text)) {
    if (reply.stopped() != StopReason::none) break;
    pieces.push_back(reply.take(token));
  }
  if (reply.stopped() != StopReason::none) pieces.push_back(reply.finish());
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Reply, TextComesWhenItIsCertain) {
  Reply reply = reply_to("a", {.stop = {.strings = {"xyz"}}});
  EXPECT_EQ(write(reply, "b\xc3\xa9xyxc"), (Pieces{"b", "", "\xc3\xa9", "", "", "xy", "xc"}));
  EXPECT_EQ(reply.stopped(), StopReason::none);
  EXPECT_EQ(reply.text(), "b\xc3\xa9xyxc");
  EXPECT_EQ(reply.tokens().size(), 7u);
}

TEST(Reply, ItsContextIsThePromptAndWhatWasTaken) {
  Reply reply = reply_to("ab", {});
  reply.take('c');
  reply.take('d');
  const std::vector<Token> context(reply.context().begin(), reply.context().end());
  const std::vector<Token> own(reply.tokens().begin(), reply.tokens().end());
  EXPECT_EQ(context, tokens_of("abcd"));
  EXPECT_EQ(own, tokens_of("cd"));
}

TEST(Reply, TheTokenLimitIsTheNumberOfTokens) {
  for (const std::int64_t limit : {0, 1, 5}) {
    Reply reply = reply_to("a", at_most(limit));
    write(reply, "bcdefghij");
    EXPECT_EQ(reply.stopped(), StopReason::token_limit);
    EXPECT_EQ(std::ssize(reply.tokens()), limit);
    EXPECT_EQ(reply.text(), std::string("bcdefghij").substr(0, static_cast<std::size_t>(limit)));
  }
  Reply endless = reply_to("a", at_most(-1));
  write(endless, "bcdefghij");
  EXPECT_EQ(endless.stopped(), StopReason::none);
}

TEST(Reply, PromptAndReplyFillTheContextAndNoMore) {
  for (const std::int64_t context : {3, 4, 7}) {
    Reply reply = reply_to("abc", {.context = context});
    write(reply, "defghij");
    EXPECT_EQ(reply.stopped(), StopReason::context_full);
    EXPECT_EQ(std::ssize(reply.context()), context);
  }
  Reply both = reply_to("abc", {.stop = {.max_tokens = 2}, .context = 5});
  write(both, "defghij");
  EXPECT_EQ(both.stopped(), StopReason::token_limit);
}

TEST(Reply, AnEndTokenIsNoPartOfItAndLetsTheRestOut) {
  Reply reply = reply_to("a", {.stop = {.end_tokens = {'!', bytes().eos()}, .strings = {"cde"}}});
  EXPECT_EQ(write(reply, "bcd!e"), (Pieces{"b", "", "", "", "cd"}));
  EXPECT_EQ(reply.stopped(), StopReason::end_token);
  EXPECT_EQ(reply.text(), "bcd");
  EXPECT_EQ(reply.tokens().size(), 3u);
  // An incomplete character at the end becomes U+FFFD.
  Reply half = reply_to("a", {.stop = {.end_tokens = {'!'}}});
  EXPECT_EQ(write(half, "b\xe2\x96!"), (Pieces{"b", "", "", "", "\xef\xbf\xbd"}));
}

TEST(Reply, AStopStringEndsTheText) {
  Reply reply = reply_to("xy", {.stop = {.strings = {"yz", "cd"}, .max_tokens = 4}});
  EXPECT_EQ(write(reply, "zbcd"), (Pieces{"z", "b", "", "", ""}));  // also at the limit
  EXPECT_EQ(reply.stopped(), StopReason::stop_string);
  EXPECT_EQ(reply.stop_string(), "cd");
  EXPECT_EQ(reply.text(), "zb");
  EXPECT_EQ(reply.tokens().size(), 4u);  // the cache would contain them
}

TEST(Reply, AStopStringMayBeCompleteWithTheLastText) {
  Reply reply = reply_to("a", {.stop = {.strings = {"b\xef\xbf\xbd"}, .max_tokens = 2}});
  EXPECT_EQ(write(reply, "b\xe2"), (Pieces{"", "", ""}));
  EXPECT_EQ(reply.stopped(), StopReason::stop_string);
  EXPECT_EQ(reply.text(), "");
}

TEST(Reply, AnInterruptCountsMoreThanALimitAndLessThanAnEnd) {
  const auto interrupted = [](ReplyRules rules, const std::string& text) {
    Reply reply = reply_to("a", std::move(rules));
    for (const Token token : tokens_of(text)) reply.take(token);
    reply.interrupt();
    return reply.stopped();
  };
  EXPECT_EQ(interrupted({}, ""), StopReason::interrupted);
  EXPECT_EQ(interrupted({}, "bc"), StopReason::interrupted);
  EXPECT_EQ(interrupted(at_most(2), "bc"), StopReason::interrupted);
  EXPECT_EQ(interrupted({.context = 3}, "bc"), StopReason::interrupted);
  EXPECT_EQ(interrupted({.stop = {.end_tokens = {'c'}}}, "bc"), StopReason::end_token);
  EXPECT_EQ(interrupted({.stop = {.strings = {"c"}}}, "bc"), StopReason::stop_string);
  Reply reply = reply_to("a", {.stop = {.strings = {"cd"}}});
  reply.take('c');
  reply.interrupt();
  EXPECT_EQ(reply.finish(), "c");
  EXPECT_EQ(reply.stopped(), StopReason::interrupted);
}

TEST(Reply, AFailureEndsItWithItsError) {
  Reply reply = reply_to("a", {.stop = {.strings = {"c\xef\xbf\xbd"}}});
  reply.take('c');
  reply.take(0xe2);
  reply.fail("sampler: every token is banned");
  reply.interrupt();
  EXPECT_EQ(reply.finish(), "");
  EXPECT_EQ(reply.stopped(), StopReason::failed);
  EXPECT_EQ(reply.error(), "sampler: every token is banned");
}

TEST(Reply, RefusesCallsOutOfTurn) {
  Reply reply = reply_to("a", at_most(1));
  EXPECT_THROW(reply.take(kNoToken), Error);
  EXPECT_THROW(reply.finish(), Error);
  reply.take('b');
  EXPECT_THROW(reply.take('c'), Error);
  EXPECT_EQ(reply.text(), "b");
}

TEST(Reply, TheSpaceBeforeATextIsDroppedWhereItIsAsked) {
  const Tokenizer words(test::small_sentencepiece_spec(TokenizerKind::sentencepiece_bpe));
  const auto first_text = [&](bool at_text_start) {
    Reply reply(words, std::vector<Token>{words.bos()}, Sampler({}, words.size(), {}),
                {.context = kContext, .at_text_start = at_text_start});
    std::string text;
    for (const Token token : words.encode("the a", {})) text += reply.take(token);
    return text;
  };
  EXPECT_EQ(first_text(true), "the a");
  EXPECT_EQ(first_text(false), " the a");
}

TEST(Reply, ADrawDependsOnItsIndexTheReplyAndTheChoice) {
  const SamplingSettings settings = {.seed = 77};
  for (const std::uint32_t number : {0u, 3u}) {
    for (const std::uint32_t choice : {0u, 2u}) {
      Reply reply(bytes(), tokens_of("ab"), sampler(settings),
                  {.context = kContext, .number = number, .choice = choice});
      for (std::uint32_t index = 0; index < 4; ++index) {
        EXPECT_EQ(reply.request().rule.random, philox(77, {index, number, choice, 0})[0]);
        reply.take('c');
      }
    }
  }
}

TEST(Reply, PenaltiesSeeThePromptAndTheReply) {
  const SamplingSettings settings = {.repeat_last_n = 3, .presence_penalty = 1};
  Reply reply(bytes(), tokens_of("xab"), sampler(settings), {.context = kContext});
  const auto penalised = [&] {
    std::string text;
    for (const LogitChange& change : reply.request().changes) {
      text.append(static_cast<std::size_t>(change.repeats), static_cast<char>(change.id));
    }
    return text;
  };
  EXPECT_EQ(penalised(), "abx");
  reply.take('b');
  EXPECT_EQ(penalised(), "abb");
}

// In a batch of three rows, a row with invalid numbers ends only its own reply.
TEST(Reply, ABadRowEndsItsOwnReply) {
  const auto backend = make_cpu_backend({.threads = 1});
  const auto vocabulary = static_cast<std::int64_t>(bytes().size());
  const auto at = [&](std::int64_t row, Token id) {
    return static_cast<std::size_t>(row * vocabulary + id);
  };
  std::vector<float> numbers(static_cast<std::size_t>(3 * vocabulary), 0.0f);
  numbers[at(0, 'x')] = 50;
  numbers[at(1, 'q')] = std::numeric_limits<float>::infinity();
  numbers[at(2, 'y')] = 50;
  Rows logits = backend->allocate_rows(3, vocabulary, {});
  backend->assign(numbers, logits);
  std::vector<Reply> replies;
  std::vector<SampleRequest> requests;
  for (int i = 0; i < 3; ++i) replies.push_back(reply_to("a", at_most(2)));
  for (Reply& reply : replies) requests.push_back(reply.request());
  std::vector<std::int32_t> drawn(3);
  backend->sample(logits, requests, drawn);
  for (std::size_t i = 0; i < 3; ++i) {
    if (drawn[i] >= 0) {
      replies[i].take(drawn[i]);
    } else {
      replies[i].fail(undrawn_text(*backend, logits, static_cast<std::int64_t>(i), drawn[i]));
    }
  }
  EXPECT_EQ(replies[0].text(), "x");
  EXPECT_EQ(replies[1].stopped(), StopReason::failed);
  EXPECT_EQ(replies[1].error(),
            "sampler: the logit of token 113 is inf: the model's weights or scales are damaged");
  EXPECT_EQ(replies[2].text(), "y");
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_EQ(replies[i].stopped(), StopReason::none);
    replies[i].take('z');
    EXPECT_EQ(replies[i].stopped(), StopReason::token_limit);
  }
}

TEST(Reply, IsAValue) {
  std::vector<Reply> replies;
  for (const char* prompt : {"a", "b", "c"}) replies.push_back(reply_to(prompt, at_most(3)));
  for (Reply& reply : replies) reply.take('x');
  Reply copy = replies[2];
  replies.erase(replies.begin());
  replies[0].take('y');
  replies[1].take('z');
  EXPECT_EQ(replies[0].text(), "xy");
  EXPECT_EQ(replies[1].text(), "xz");
  EXPECT_EQ(copy.text(), "x");
  EXPECT_EQ(copy.take('w'), "w");
  EXPECT_EQ(copy.request().rule.random, replies[1].request().rule.random);
}

}  // namespace
}  // namespace leq
