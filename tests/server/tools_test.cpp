// Tools that a model may call, over HTTP: the storyteller gets a token that begins a call and a
// bias that makes it write that token; what follows must be a call that matches the tool's schema.
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/calling_model.h"
#include "shared_data.h"

namespace leq::test {
namespace {

// A model with the mark of a call style, and a template that contains it.
class Caller {
 public:
  Caller(const std::string& mark, bool special)
      : model_({.name = special ? "caller-mistral" : "caller-hermes",
                .mark = mark,
                .special = special,
                .chat_template = "{# " + mark +
                                 " #}{% for m in messages %}{{ '[INST] ' + m['content'] + ' "
                                 "[/INST]' }}{% endfor %}"}) {}

  ServedModel::Answer ask(const Json& changes) const {
    return post("/v1/chat/completions", changes);
  }
  ServedModel::Answer prompt(const Json& changes) const { return post("/apply-template", changes); }

  ServedModel::Answer post(const std::string& path, const Json& changes) const {
    Json body = {{"messages", Json::array({Json::object({{"role", "user"}, {"content", "Hi"}})})},
                 {"seed", 3},
                 {"max_tokens", 120},
                 {"temperature", 1.0},
                 {"parallel_tool_calls", false},
                 {"tools", parse_json(kTools, "tools")},
                 {"logit_bias", Json::object({{std::to_string(model_.token()), 1000}})}};
    for (const auto& [name, value] : changes.items()) body[name] = value;
    return model_.served().post(path, body);
  }

  static constexpr const char* kTools = R"([{"type": "function", "function": {"name": "paint",
      "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]},
      "coats": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["colour", "coats"],
      "additionalProperties": false}}}])";

 private:
  CallingModel model_;
};

void expect_call(const std::string& name, const std::string& arguments) {
  EXPECT_EQ(name, "paint");
  const Json json = parse_json(arguments, "arguments");
  EXPECT_EQ(json.size(), 2u);
  EXPECT_TRUE(json["colour"].text() == "red" || json["colour"].text() == "blue") << arguments;
  EXPECT_GE(json["coats"].get<int>(), 1);
  EXPECT_LE(json["coats"].get<int>(), 9);
}

class ToolCallsOf : public testing::TestWithParam<std::pair<const char*, bool>> {};

TEST_P(ToolCallsOf, AModelThatMayCallAreHeldToTheSchema) {
  const Caller caller(GetParam().first, GetParam().second);
  const auto answer = caller.ask(Json::object({}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& choice = answer.json["choices"][0];
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << answer.body;
  EXPECT_EQ(choice["finish_reason"].text(), "tool_calls");
  const Json& function = choice["message"]["tool_calls"][0]["function"];
  expect_call(function["name"].text(), function["arguments"].text());

  const auto streamed = caller.ask(Json::object({{"stream", true}}));
  bool done = false;
  std::string name, arguments;
  std::size_t pieces = 0;
  for (const Json& event : events_of(streamed.body, &done)) {
    const Json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const Json& piece = delta["tool_calls"][0]["function"];
    if (piece.contains("name")) name += piece["name"].text();
    arguments += piece["arguments"].text();
    ++pieces;
  }
  EXPECT_TRUE(done) << streamed.body;
  EXPECT_GT(pieces, 2u) << streamed.body;  // sent as they are generated
  EXPECT_EQ(name, function["name"].text());
  EXPECT_EQ(arguments, function["arguments"].text());

  // If calls are not allowed, the model may write the mark of a call as text.
  const auto none = caller.ask(Json::object({{"tool_choice", "none"}, {"max_tokens", 5}}));
  EXPECT_FALSE(none.json["choices"][0]["message"].contains("tool_calls")) << none.body;
  EXPECT_EQ(none.json["usage"]["completion_tokens"].get<int>(), 5);
  // The model writes several calls, until the token limit.
  const auto several =
      caller.ask(Json::object({{"parallel_tool_calls", true}, {"max_tokens", 400}}));
  EXPECT_GT(several.json["choices"][0]["message"]["tool_calls"].size(), 1u) << several.body;
}

TEST_P(ToolCallsOf, WithoutACallTheReplyIsTheOneWithoutAGrammar) {
  const Caller caller(GetParam().first, GetParam().second);
  // The prompt describes the tools if they may be called; here it does so in both requests.
  const Json free = Json::object({{"logit_bias", Json::object({})}});
  Json plain = free;
  plain["tool_choice"] = "none";
  const std::string described =
      caller.prompt(Json::object()).json["prompt"].text().substr(std::string("[INST] ").size());
  plain["messages"] = Json::array(
      {{{"role", "system"}, {"content", described.substr(0, described.find(" [/INST]"))}},
       {{"role", "user"}, {"content", "Hi"}}});
  const auto expected = caller.ask(plain), found = caller.ask(free);
  EXPECT_FALSE(expected.json["choices"][0]["message"]["content"].text().empty());
  EXPECT_EQ(found.json["choices"][0]["message"]["content"].text(),
            expected.json["choices"][0]["message"]["content"].text());
}

INSTANTIATE_TEST_SUITE_P(Styles, ToolCallsOf,
                         testing::Values(std::pair{"<tool_call>", false},
                                         std::pair{"[TOOL_CALLS]", true}),
                         [](const auto& one) { return one.param.second ? "mistral" : "hermes"; });

// The limit cuts the reply in a mark of a call, or between two calls.
TEST(ForcedCalls, LeaveNoPieceOfAMarkAsContent) {
  const Caller caller("<tool_call>", false);
  for (int limit = 1; limit <= 60; limit += limit < 6 ? 1 : 9) {
    Json asked = {{"logit_bias", Json::object()},
                  {"tool_choice", "required"},
                  {"parallel_tool_calls", true},
                  {"max_tokens", limit}};
    const auto whole = caller.ask(asked);
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json& content = whole.json["choices"][0]["message"]["content"];
    EXPECT_TRUE(content.is_null() || content.text().empty()) << whole.body;
    asked["stream"] = true;
    bool done = false;
    for (const Json& event : events_of(caller.ask(asked).body, &done)) {
      const Json& delta = event["choices"][0]["delta"];
      EXPECT_TRUE(!delta.contains("content") || delta["content"].text().empty()) << limit;
    }
    EXPECT_TRUE(done);
  }
}

TEST(RolesOfMessages, AreThoseThatTheTemplateNames) {
  const CallingModel model(
      {.name = "caller-roles-of-its-own",
       .chat_template = "{% for m in messages %}{% if m.role in ['user', 'document'] %}"
                        "{{ '[' ~ m.role ~ ': ' ~ m.content ~ ']' }}{% endif %}{% endfor %}"});
  const auto ask = [&](const std::string& path, const std::string& message) {
    return model.served().post(path, R"({"messages":[{"role":"user","content":"a"},{)" + message +
                                         R"(}],"stream":false})");
  };
  const auto known = ask("/apply-template", R"("role":"document","content":"b")");
  EXPECT_NE(known.body.find("[document: b]"), std::string::npos) << known.body;
  const std::string expected = "expected system, developer, user, assistant or tool, found ";
  for (const auto& [message, fault] : std::vector<std::pair<std::string, std::string>>{
           {R"("role":"bot","content":"b")", "role: " + expected + R"(\"bot\")"},
           {R"("role":"function","content":"b")", "role: " + expected + R"(\"function\")"},
           {R"("role":"assistant","function_call":{"name":"f"})",
            "function_call: is not supported"}}) {
    const auto refused = ask("/v1/chat/completions", message);
    EXPECT_EQ(refused.status, 400) << message;
    EXPECT_NE(refused.body.find("messages[1]." + fault), std::string::npos) << refused.body;
  }
  const auto none = ask("/v1/chat/completions", R"("content":"b")");
  EXPECT_NE(none.body.find("messages[1].role: " + expected + "nothing"), std::string::npos)
      << none.body;
  const auto ollama = ask("/api/chat", R"("role":"bot","content":"b")");
  EXPECT_EQ(ollama.status, 400);
  EXPECT_NE(ollama.body.find("messages[1].role: "), std::string::npos) << ollama.body;
}

// Qwen 3.5's template requires a question, and a system message at the beginning.
TEST(RefusingTemplate, IsTheClientsError) {
  LEQ_SHARED_OR_SKIP(path, "data/chat/templates/Qwen3.5-4B.jinja");
  const CallingModel model({.name = "caller-refuses", .chat_template = read_file(path, 1 << 20)});
  const auto ask = [&](const char* messages) {
    return model.served().post("/v1/chat/completions",
                               std::string(R"({"max_tokens":2,"messages":)") + messages + "}");
  };
  const auto late =
      ask(R"([{"role":"user","content":"Hi"},{"role":"system","content":"Be brief."}])");
  EXPECT_EQ(late.status, 200) << late.body;  // joined to the beginning
  EXPECT_TRUE(late.headers.contains("X-Leq-Warnings"));
  const auto none = ask(R"([{"role":"system","content":"Be brief."}])");
  EXPECT_EQ(none.status, 400);
  EXPECT_NE(none.body.find("No user query found"), std::string::npos) << none.body;
  EXPECT_EQ(
      ask(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])").status,
      200);
}

}  // namespace
}  // namespace leq::test
