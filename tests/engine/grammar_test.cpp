// Replies under a grammar match the grammar, regardless of drafts and of concurrent requests.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "chat/tool_grammar.h"
#include "engine/engine.h"
#include "fixed_drafts.h"
#include "models_fixture.h"
#include "runtime/make_backend.h"
#include "shared_data.h"

namespace leq {
namespace {

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "kind":
    {"enum": ["cat", "dog"]}, "ages": {"type": "array", "items": {"type": "integer", "minimum": 0,
    "maximum": 99}, "minItems": 2, "maxItems": 4}}, "required": ["name", "kind", "ages"]})";

class EngineGrammar : public testing::Test {
 protected:
  EngineGrammar()
      : model(test::quantized(*test::shared_path("models/storyteller"), "int8"), {}),
        backend(make_backend({.device = "cpu"})) {}

  // Generates replies to all requests concurrently; returns them by the seed of the request.
  std::map<std::uint64_t, EngineReply> replies(const std::vector<EngineRequest>& requests,
                                               const EngineOptions& options) {
    RunLimits limits;
    limits.context = limits.sequence_context = 256;
    limits.sequences = 4;
    limits.output_tokens = 40;
    Session session(model, *backend, resolve_limits(limits, model.config()));
    Engine engine(session, model.tokenizer(), options);
    std::map<std::uint64_t, EngineReply> found;
    for (EngineRequest request : requests) {
      const std::uint64_t seed = request.sampling.seed;
      request.on_end = [&found, seed](const EngineReply& reply) { found[seed] = reply; };
      engine.submit(std::move(request));
    }
    while (engine.step()) {
    }
    return found;
  }

  EngineRequest request(std::uint64_t seed, std::shared_ptr<const Grammar> grammar) const {
    EngineRequest made;
    made.prompt = model.tokenizer().encode("Once upon a time there was a cat. Once upon a time",
                                           {.add_bos = true});
    made.sampling.seed = seed;
    made.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.9f;
    made.sampling.mirostat = seed % 5 == 4 ? 2 : 0;
    made.sampling.xtc_probability = seed % 5 == 2 ? 0.5f : 0.0f;
    made.sampling.repeat_penalty = seed % 2 == 0 ? 1.1f : 1.0f;
    made.stop.end_tokens = model.end_tokens();
    made.stop.max_tokens = 200;
    made.grammar = std::move(grammar);
    return made;
  }

  Model model;
  std::unique_ptr<Backend> backend;
};

TEST_F(EngineGrammar, RepliesAreWhatTheSchemaAcceptsWithDraftsAndWithout) {
  const auto grammar = Grammar::from_json_schema(kSchema, "schema");
  std::vector<EngineRequest> requests;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    requests.push_back(request(seed, seed == 7 ? nullptr : grammar));
  }
  const auto plain = replies(requests, {.speculate = false});
  const auto drafted = replies(requests, {.plan_drafts = test::fixed_drafts(6)});
  ASSERT_EQ(plain.size(), requests.size());
  for (const auto& [seed, reply] : plain) {
    EXPECT_EQ(reply.tokens, drafted.at(seed).tokens) << seed;
    if (seed == 7) continue;
    ASSERT_EQ(reply.stopped, StopReason::end_token) << reply.text;
    const Json json = parse_json(reply.text, "reply");
    EXPECT_LE(json["name"].text().size(), 48u);
    EXPECT_TRUE(json["kind"].text() == "cat" || json["kind"].text() == "dog");
    EXPECT_GE(json["ages"].size(), 2u);
    EXPECT_LE(json["ages"].size(), 4u);
    for (const Json& age : json["ages"]) EXPECT_LE(age.get<int>(), 99);
  }
  // The replies are the same if requests run one at a time.
  for (const EngineRequest& one : requests) {
    const auto alone = replies({one}, {});
    EXPECT_EQ(alone.begin()->second.tokens, plain.at(alone.begin()->first).tokens);
  }
}

TEST_F(EngineGrammar, EndsWhereTheTextIsWholeAndFailsWhereNothingIsAllowed) {
  const auto end = [&](const char* gbnf, auto change) {
    EngineRequest one = request(3, Grammar::from_gbnf(gbnf, "g"));
    change(one);
    return replies({one}, {}).at(3);
  };
  const auto as_is = [](EngineRequest&) {};
  const EngineReply whole = end("root ::= \" yes\" | \" no\"", as_is);
  EXPECT_EQ(whole.stopped, StopReason::end_token);
  EXPECT_TRUE(whole.text == " yes" || whole.text == " no") << whole.text;
  EXPECT_EQ(end("root ::= \"\"", as_is).text, "");
  // If no end token is allowed, a text continues as long as the grammar allows.
  const EngineReply open = end("root ::= [a-z]+", [](EngineRequest& one) {
    one.stop.end_tokens.clear();
    one.stop.max_tokens = 20;
  });
  EXPECT_EQ(open.stopped, StopReason::token_limit);
  EXPECT_EQ(open.tokens.size(), 20u);
  EXPECT_EQ(open.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos);
  // A banned token stays banned, even if the grammar allows no other token.
  const EngineReply stuck = end("root ::= \"q\"", [&](EngineRequest& one) {
    for (Token id = 0; id < static_cast<Token>(model.tokenizer().size()); ++id) {
      if (model.tokenizer().token_bytes(id) == "q") one.banned.push_back(id);
    }
  });
  EXPECT_EQ(stuck.stopped, StopReason::failed);
  // A grammar that is too ambiguous allows no token; the other replies continue.
  EngineRequest bad =
      request(1, Grammar::from_gbnf("root ::= [a-z] root \"a\" | [a-z] root \"b\" | \"z\"", "g"));
  const auto both = replies({bad, request(2, Grammar::from_json_schema(kSchema, "s"))}, {});
  EXPECT_EQ(both.at(1).stopped, StopReason::failed);
  EXPECT_NE(std::string(both.at(1).error->what()).find("grammar: "), std::string::npos);
  EXPECT_EQ(both.at(2).stopped, StopReason::end_token);
}

// One draft model does not know the grammar, another agrees with the model whenever possible: the
// replies are the same as without drafts.
TEST_F(EngineGrammar, ADraftModelChangesNoReply) {
  const auto grammar = Grammar::from_json_schema(kSchema, "schema");
  std::vector<EngineRequest> requests;
  for (std::uint64_t seed = 0; seed < 6; ++seed) requests.push_back(request(seed, grammar));
  const auto plain = replies(requests, {.speculate = false});
  RunLimits limits;
  limits.context = limits.sequence_context = 256;
  limits.sequences = 4;
  limits.output_tokens = 40;
  limits = resolve_limits(limits, model.config());
  Session small(model, *backend, draft_limits(limits, model.config()));
  std::int64_t drafted = 0;
  for (const auto& [seed, reply] :
       replies(requests, {.draft = &small, .plan_drafts = test::fixed_drafts(4)})) {
    EXPECT_EQ(reply.tokens, plain.at(seed).tokens) << seed;
    drafted += reply.draft_tokens;
  }
  EXPECT_GT(drafted, 20);
}

// Text is free until a call begins (here a replay of several tokens forces one), then constrained.
TEST_F(EngineGrammar, AToolsGrammarHoldsCallsAloneWithDraftsAndWithout) {
  const Json tools = parse_json(
      R"([{"function": {"name": "paint", "parameters": {"type": "object", "properties": {"colour":
      {"enum": ["red", "blue"]}, "note": {"type": "string", "maxLength": 20}}, "required":
      ["colour", "note"], "additionalProperties": false}}}])",
      "tools");
  const ReplyStyle style = {.tools = ToolCallStyle::hermes};
  const auto grammar =
      tool_grammar(style, {.tools = tools, .source = "tools", .count = CallCount::one}, "");
  std::vector<EngineRequest> requests;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    requests.push_back(request(seed, grammar));
    requests.back().replay.tokens = model.tokenizer().encode("I do 2 < 3. <tool_call>", {});
  }
  const auto plain = replies(requests, {.speculate = false});
  const auto drafted = replies(requests, {.plan_drafts = test::fixed_drafts(6)});
  for (const auto& [seed, reply] : plain) {
    EXPECT_EQ(reply.tokens, drafted.at(seed).tokens) << seed;
    ASSERT_EQ(reply.stopped, StopReason::end_token) << reply.text;
    ReplyReader reader(style, "", true);
    ReplyPiece told = reader.push(reply.text);
    EXPECT_EQ(told.content, " I do 2 < 3.");
    ASSERT_EQ(reader.calls(), 1u) << reply.text;
    std::string arguments;
    for (const ToolCallPiece& piece : told.calls) arguments += piece.arguments;
    const Json json = parse_json(arguments, "arguments");
    EXPECT_TRUE(json["colour"].text() == "red" || json["colour"].text() == "blue");
    EXPECT_TRUE(json["note"].is_string());
  }
  // Without a call, no text is constrained; tokens without text are allowed, too.
  EngineRequest free = request(1, grammar), none = request(1, nullptr);
  const Token eos = model.tokenizer().eos();
  for (EngineRequest* one : {&free, &none}) {
    one->stop.end_tokens.clear();
    one->stop.max_tokens = 40;
    one->replay.tokens = {eos};
  }
  EXPECT_EQ(replies({free}, {}).at(1).tokens, replies({none}, {}).at(1).tokens);
}

// Replies with the same grammar share its tables. Each reply is the same as alone, whether the
// tables are full before it, because of replies beside it, or because of itself.
TEST_F(EngineGrammar, TablesThatOtherRepliesFilledChangeNoReply) {
  const auto grammar = Grammar::from_gbnf(
      "root ::= \"(\" root \")\" | \"[\" root \"]\" | \"<\" root \">\" | [a-z] root [A-Z] | \"\"",
      "g");
  std::vector<EngineRequest> requests;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    requests.push_back(request(seed, grammar));
    requests.back().sampling = {.temperature = 3, .min_p = 0, .seed = seed};
    requests.back().stop.max_tokens = seed % 4 == 3 ? 90 : 30;
  }
  std::size_t failed = 0, ended = 0;
  for (const std::size_t stacks : {400, 500, 600, 800, 1'000, 1'400}) {
    const EngineOptions options = {.speculate = false, .grammar_limits = {.stacks = stacks}};
    const auto together = replies(requests, options);
    for (const EngineRequest& one : requests) {
      const EngineReply alone = replies({one}, options).begin()->second;
      const EngineReply& found = together.at(one.sampling.seed);
      EXPECT_EQ(found.tokens, alone.tokens) << one.sampling.seed;
      EXPECT_EQ(found.stopped, alone.stopped) << one.sampling.seed;
      (alone.stopped == StopReason::failed ? failed : ended) += 1;
    }
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(ended, 5u);
}

TEST_F(EngineGrammar, ShownSpecialTokensArePartOfTheText) {
  EngineRequest one = request(3, nullptr);
  const Token eos = model.tokenizer().eos();
  one.stop.end_tokens.clear();
  one.stop.max_tokens = 3;
  one.replay.tokens = {eos, eos, eos};
  EXPECT_EQ(replies({one}, {}).at(3).text, "");
  one.shown = {eos};
  const std::string text = model.tokenizer().decode(std::span(&eos, 1), true);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(replies({one}, {}).at(3).text, text + text + text);
}

// As the engine keeps the tables of the latest four, so that clients with ever new grammars fill no
// memory.
TEST_F(EngineGrammar, OnlyTheLatestGrammarsAreKept) {
  RunLimits limits;
  limits.context = 64;
  Session session(model, *backend, resolve_limits(limits, model.config()));
  Engine engine(session, model.tokenizer(), {});
  std::vector<std::weak_ptr<const Grammar>> all;
  for (int i = 0; i < 6; ++i) {
    const auto grammar = Grammar::from_gbnf("root ::= \"a" + std::to_string(i) + "\"", "g");
    for (int time = 0; time < 2; ++time)
      engine.check_grammar(grammar);  // the second time it is known
    all.push_back(grammar);
  }
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].expired(), i < 2) << i;
}

}  // namespace
}  // namespace leq
