// Tests what requests may contain, who may send them, and messages about unsupported features.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "runtime/model_files.h"
#include "server/access.h"
#include "server/calling_model.h"
#include "server/fields.h"
#include "server/raw_client.h"

namespace leq::test::rules {
namespace {

const std::string kChat = "/v1/chat/completions";
const std::string kUser = R"("messages":[{"role":"user","content":"x"}])";
const std::string kPlan =
    R"({"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":9}},"required":["n"],"additionalProperties":false})";

std::string tool(const std::string& parameters, const std::string& more = "") {
  return R"([{"type":"function","function":{"name":"f","parameters":)" + parameters + more + "}}]";
}
std::string asked(const std::string& more) {
  return "{" + kUser + R"(,"seed":3,"max_tokens":120,)" + more + "}";
}

const CallingModel& hermes() {
  static const CallingModel model({.name = "caller-rules", .chat_template = kHermesTemplate});
  return model;
}
const CallingModel& thinker() {
  static const CallingModel model(
      {.name = "caller-thoughtful", .chat_template = kThinkingTemplate});
  return model;
}
const ServedModel& plain() {
  static const ServedModel served;
  return served;
}
ServedModel::Answer ask(const CallingModel& model, const std::string& more) {
  return model.served().post(kChat, asked(more));
}

TEST(ThinkingRules, AFormatBeginsAfterTheReasoning) {
  const std::string format =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"p","schema":)" + kPlan +
      "}}";
  const auto answer = ask(thinker(), format + R"(,"thinking_budget_tokens":10)");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& message = answer.json["choices"][0]["message"];
  EXPECT_FALSE(message["reasoning_content"].text().empty());
  EXPECT_GE(parse_json(message["content"].text(), "reply")["n"].get<int>(), 1);
  const auto off = ask(thinker(), format + R"(,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_FALSE(off.json["choices"][0]["message"].contains("reasoning_content")) << off.body;
  EXPECT_NO_THROW(parse_json(off.json["choices"][0]["message"]["content"].text(), "reply"));
}

TEST(ThinkingRules, ARequiredCallComesAfterTheReasoning) {
  for (const char* stream : {"false", "true"}) {
    const auto answer = ask(
        thinker(),
        R"("tool_choice":"required","parallel_tool_calls":false,"thinking_budget_tokens":10,"stream":)" +
            std::string(stream) + R"(,"tools":)" + tool(kPlan));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("reasoning_content"), std::string::npos) << answer.body;
    EXPECT_NE(answer.body.find(R"("name":"f")"), std::string::npos) << answer.body;
    EXPECT_NE(answer.body.find(R"("finish_reason":"tool_calls")"), std::string::npos);
  }
}

TEST(ThinkingRules, ReasoningEndsWithItsBudget) {
  const auto reasoning = [&](const std::string& more) {
    const auto answer = ask(thinker(), more);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json& message = answer.json["choices"][0]["message"];
    return message.contains("reasoning_content") ? message["reasoning_content"].text() : "";
  };
  const Tokenizer& tokenizer = story_model().tokenizer();
  const std::string free = reasoning(R"("temperature":0)");
  for (const int budget : {1, 5, 20}) {
    const std::string bounded =
        reasoning(R"("temperature":0,"thinking_budget_tokens":)" + std::to_string(budget));
    const std::size_t end = bounded.find("\n\nThere is no time left to think");
    ASSERT_NE(end, std::string::npos) << bounded;
    const std::string own(trim(bounded.substr(0, end)));
    EXPECT_TRUE(free.starts_with(own)) << own;
    EXPECT_LE(tokenizer.encode(own, {}).size(), static_cast<std::size_t>(budget) + 1) << own;
  }
  EXPECT_EQ(reasoning(R"("reasoning_effort":"none")"), "");
  EXPECT_EQ(free.find("no time left"), std::string::npos);
  ServerOptions options = story_options();
  options.reasoning_tokens = 4;
  options.reasoning_words = "\nEnough.\n";
  const CallingModel bounded({.name = "caller-bounded", .chat_template = kThinkingTemplate},
                             options);
  EXPECT_NE(ask(bounded, R"("temperature":0)").body.find("Enough."), std::string::npos);
  EXPECT_EQ(ask(bounded, R"("temperature":0,"thinking_budget_tokens":-1)").body.find("Enough."),
            std::string::npos);
}

// Feeding several draft tokens at once must not change the budget.
TEST(ThinkingRules, ABudgetIsTheSameWithAndWithoutDraftTokens) {
  ServerOptions options = story_options();
  options.engine.speculate = false;
  const CallingModel slow({.name = "caller-slow", .chat_template = kThinkingTemplate}, options);
  const std::string more = R"("temperature":0,"thinking_budget_tokens":12)";
  EXPECT_EQ(ask(slow, more).json["choices"], ask(thinker(), more).json["choices"]);
}

TEST(ToolRules, AFormatBesideToolsIsACallOrTheSchema) {
  const std::string both =
      R"("response_format":{"type":"json_schema","json_schema":{"name":"p","schema":)" + kPlan +
      R"(}},"tools":)" + tool(kPlan);
  const auto answer = ask(hermes(), both);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& message = answer.json["choices"][0]["message"];
  if (!message.contains("tool_calls")) {
    EXPECT_GE(parse_json(message["content"].text(), "r")["n"].get<int>(), 1);
  }
  const auto call = ask(hermes(), both + R"(,"logit_bias":{")" + std::to_string(hermes().token()) +
                                      R"(":1000},"parallel_tool_calls":false)");
  EXPECT_EQ(call.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"].text(), "f")
      << call.body;
  // A template that knows no calls: in Hermes' notation.
  const auto unknown = plain().post(kChat, asked(both));
  EXPECT_EQ(unknown.status, 200) << unknown.body;
}

TEST(ToolRules, AForcedToolsReferencesAndEmptyParametersAreUnderstood) {
  const std::string referring = tool(
      R"({"type":"object","properties":{"c":{"$ref":"#/$defs/C"}},"required":["c"],"$defs":{"C":{"enum":["red","blue"]}}})");
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})"}) {
    const auto answer = ask(hermes(), R"("tools":)" + referring + R"(,"tool_choice":)" + choice);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const std::string arguments =
        answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].text();
    const std::string colour = parse_json(arguments, "a")["c"].text();
    EXPECT_TRUE(colour == "red" || colour == "blue") << arguments;
  }
}

// A call that the limit cuts is a call with what there is, its text never content.
TEST(ToolRules, ACallThatIsCutIsACall) {
  const std::string named =
      R"("tool_choice":"required","tools":)" +
      tool(
          R"({"type":"object","properties":{"n":{"type":"string","minLength":400}},"required":["n"]})");
  for (const int most : {1, 4, 12, 25}) {
    const std::string body =
        "{" + kUser + R"(,"seed":3,"max_tokens":)" + std::to_string(most) + "," + named;
    const auto answer = hermes().served().post(kChat, body + "}");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json& choice = answer.json["choices"][0];
    EXPECT_EQ(choice["finish_reason"].text(), "length");
    const Json& message = choice["message"];
    EXPECT_TRUE(message["content"].is_null() || message["content"].text().empty()) << answer.body;
    bool done = false;
    std::string arguments;
    for (const Json& event :
         events_of(hermes().served().post(kChat, body + R"(,"stream":true})").body, &done)) {
      const Json& delta = event["choices"][0]["delta"];
      EXPECT_EQ(delta.contains("content") ? delta["content"].text() : "", "");
      if (delta.contains("tool_calls")) {
        arguments += delta["tool_calls"][0]["function"]["arguments"].text();
      }
    }
    EXPECT_TRUE(done);
    if (message.contains("tool_calls")) {
      EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"].text(), arguments);
    }
  }
}

// Only the allowed tools are called; the prompt describes all, so that its beginning stays cached.
TEST(ToolRules, AllowedToolsAreTheOnesThatAreCalled) {
  const std::string two =
      R"("parallel_tool_calls":false,"tools":[{"type":"function","function":{"name":"f","parameters":)" +
      kPlan + R"(}},{"type":"custom","custom":{"name":"note","description":"Notes."}}])";
  for (const char* name : {"f", "note"}) {
    const std::string choice =
        R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":")" +
        std::string(name) + R"("}}]}})";
    const auto answer = ask(hermes(), two + choice);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json& call = answer.json["choices"][0]["message"]["tool_calls"][0];
    const char* kind = name == std::string("f") ? "function" : "custom";
    EXPECT_EQ(call["type"].text(), kind);
    EXPECT_EQ(call[kind]["name"].text(), name);
    if (call["type"].text() == "custom") {
      // The input is the text itself, not JSON around it.
      EXPECT_FALSE(call["custom"]["input"].text().starts_with("{\"input\"")) << answer.body;
    }
  }
}

// A last message of the assistant is continued in every chat API, as with continue_final_message.
TEST(Prefill, IsContinuedInAllApis) {
  const std::string begun = "Once upon a time, there was a little gi";
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", begun}}});
  const Json settings = {{"temperature", 0}, {"max_tokens", 8}, {"messages", messages}};
  Json asked = settings;
  asked["continue_final_message"] = true;
  const auto expected = hermes().served().post(kChat, asked);
  ASSERT_EQ(expected.status, 200) << expected.body;
  const std::string& text = expected.json["choices"][0]["message"]["content"].text();
  EXPECT_EQ(hermes().served().post(kChat, settings).json["choices"][0]["message"]["content"].text(),
            text);
  EXPECT_EQ(hermes().served().post("/v1/messages", settings).json["content"][0]["text"].text(),
            text);
  const auto response = hermes().served().post(
      "/v1/responses", Json{{"temperature", 0}, {"max_output_tokens", 8}, {"input", messages}});
  EXPECT_EQ(response.json["output"][0]["content"][0]["text"].text(), text) << response.body;
  asked = settings;
  asked["add_generation_prompt"] = true;
  EXPECT_NE(hermes().served().post(kChat, asked).json["choices"][0]["message"]["content"].text(),
            text);
}

TEST(ToolRules, ASchemaThatIsNotHeldIsSaid) {
  const std::string odd =
      R"({"type":"object","properties":{"n":{"type":"integer","multipleOf":1009}}})";
  for (const std::string& more :
       {R"("tools":)" + tool(odd), R"("tool_choice":"required","tools":)" + tool(odd),
        R"("response_format":{"type":"json_schema","json_schema":{"name":"p","schema":)" + odd +
            "}}"}) {
    const auto answer = ask(hermes(), more);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.json["warnings"][0].text().find("'multipleOf' is not enforced"),
              std::string::npos);
    EXPECT_NE(answer.headers.find("X-Leq-Warnings")->second.find("multipleOf"), std::string::npos);
    const auto streamed = ask(hermes(), more + R"(,"stream":true)");
    EXPECT_TRUE(streamed.headers.contains("X-Leq-Warnings"));
    EXPECT_NE(streamed.body.find("\"warnings\":["), std::string::npos);
  }
  for (
      const std::string& more :
      {R"("tools":)" + tool(odd, R"(,"strict":true)"),
       R"("response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":)" +
           odd + "}}"}) {
    const auto answer = ask(hermes(), more);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.json["error"]["message"].text().find("the keyword 'multipleOf'"),
              std::string::npos);
  }
}

// llama-server's member: with "none" the thoughts stay in the content as the model writes them.
TEST(ThinkingRules, TheFormatOfReasoningIsChosen) {
  const std::string more = R"("temperature":0,"thinking_budget_tokens":10)";
  const Json whole = ask(thinker(), more).json["choices"][0]["message"];
  for (const char* same : {"auto", "deepseek"}) {
    const auto answer = ask(thinker(), more + R"(,"reasoning_format":")" + same + "\"");
    EXPECT_EQ(answer.json["choices"][0]["message"], whole) << answer.body;
  }
  const auto raw = ask(thinker(), more + R"(,"reasoning_format":"none")");
  ASSERT_EQ(raw.status, 200) << raw.body;
  const Json& message = raw.json["choices"][0]["message"];
  EXPECT_FALSE(message.contains("reasoning_content"));
  const std::string& text = message["content"].text();
  const std::size_t end = text.find("</think>");
  ASSERT_NE(end, std::string::npos) << text;
  EXPECT_EQ(trim(text.substr(0, end)), whole["reasoning_content"].text());
  EXPECT_EQ(trim(text.substr(end + 8)), trim(whole["content"].text()));
}

// Marks of reasoning that are control tokens are seen in chats without tools, too.
TEST(ThinkingRules, MarksMayBeControlTokens) {
  const CallingModel model({.name = "caller-marks",
                            .mark = "[THINK]",
                            .special = true,
                            .chat_template =
                                "{# [/THINK] #}{% for m in messages %}{{ m['content'] }}"
                                "{% endfor %}"});
  const auto answer =
      ask(model, R"("logit_bias":{")" + std::to_string(model.token()) + R"(":1000})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.json["choices"][0]["message"].contains("reasoning_content")) << answer.body;
}

TEST(Refusals, NameWhatWouldBeIgnored) {
  const std::string text = "/v1/completions";
  const std::vector<std::array<std::string, 3>> cases = {
      {kChat, asked(R"("functions":[{"name":"f"}])"), "functions"},
      {kChat, asked(R"("function_call":"auto")"), "function_call"},
      {kChat, asked(R"("modalities":["text","audio"])"), "modalities"},
      {kChat, asked(R"("audio":{"voice":"alloy"})"), "audio"},
      {kChat, asked(R"("web_search_options":{})"), "web_search_options"},
      {kChat, asked(R"("suffix":"y")"), "suffix"},
      {"/v1/responses", R"({"input":"x","functions":[{"name":"f"}]})", "functions"},
      {"/v1/responses", R"({"input":"x","suffix":"y"})", "suffix"},
      {"/v1/responses", R"({"input":"x","n":2})", "n"},
      {"/v1/responses", R"({"input":"x","modalities":["audio"]})", "modalities"},
      {"/v1/responses", R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {"/v1/responses", R"({"input":"x","max_output_tokens":-1})", "max_output_tokens"},
      {"/v1/responses", R"({"input":"x","max_output_tokens":1e12})", "max_output_tokens"},
      {"/v1/responses", R"({"input":"x","metadata":"x"})", "metadata"},
      {"/v1/responses", R"({"input":"x","metadata":{"x":1}})", "metadata"},
      {"/v1/responses", R"({"input":"x","text":{"format":{"type":"x"}}})", "text.format"},
      {"/v1/responses", R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format"},
      {"/v1/responses", R"({"input":"x","tools":[{"type":"function","function":{"name":"f"}}]})",
       "tools"},
      {kChat, asked(R"("reasoning":{"effort":"very"})"), "reasoning.effort"},
      {kChat, asked(R"("reasoning_format":"x")"), "reasoning_format"},
      {text, R"({"prompt":"x","suffix":"y"})", "suffix"},
      {text, R"({"prompt":"x","best_of":3})", "best_of"},
      {kChat, asked(R"("reasoning_effort":"very")"), "reasoning_effort"},
      {kChat, asked(R"("chat_template_kwargs":{"messages":[]})"), "chat_template_kwargs"},
      {kChat, asked(R"("chat_template_kwargs":{"tools":[]})"), "chat_template_kwargs"},
      {kChat, asked(R"("chat_template_kwargs":{"bos_token":"x"})"), "chat_template_kwargs"},
      {kChat, asked(R"("chat_template_kwargs":{"add_generation_prompt":false})"),
       "chat_template_kwargs"}};
  for (const auto& [path, body, param] : cases) {
    const auto answer = plain().post(path, body);
    EXPECT_EQ(answer.status, 400) << body;
    ASSERT_TRUE(answer.json.is_object()) << answer.body;
    EXPECT_EQ(answer.json["error"]["param"].text(), param) << answer.body;
  }
  for (const auto& [body, name] : std::vector<std::pair<std::string, std::string>>{
           {R"({"messages":[{"role":"user","content":"x"}],"format":{"type":7}})", "format: "},
           {R"({"messages":[{"role":"user","content":"x"}],"think":"very"})", "think: "}}) {
    const auto answer = plain().post("/api/chat", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(answer.json["error"].text().starts_with(name)) << answer.body;
  }
  const auto seen = plain().post(
      "/api/generate",
      R"({"prompt":"x","images":["eA=="],"stream":false,"options":{"num_predict":2}})");
  EXPECT_EQ(seen.json["warnings"][0].text(), "images: are left out: the model reads texts");
  for (const std::string& body :
       {asked(R"("functions":[],"modalities":["text"],"audio":null)"),
        asked(R"("tools":)" + tool(kPlan) + R"(,"tool_choice":"none")"),
        asked(R"("chat_template_kwargs":{"enable_thinking":false,"other":1})")}) {
    EXPECT_EQ(plain().post(kChat, body).status, 200) << body;
  }
  EXPECT_EQ(plain().post(text, R"({"prompt":"x","suffix":"","best_of":1,"max_tokens":1})").status,
            200);
}

TEST(NullContent, IsAnEmptyTextWhereATemplateConcatenatesIt) {
  const std::string chatml =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' "
      "}}{% endfor %}";
  const CallingModel model({.name = "caller-chatml", .chat_template = chatml});
  const std::string calls =
      R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  const auto prompt = [&](const std::string& message) {
    const auto answer = model.served().post(
        "/apply-template", R"({"messages":[{"role":"user","content":"x"},)" + message + "]}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json["prompt"].text();
  };
  const std::string empty = prompt(R"({"role":"assistant","content":"",)" + calls);
  EXPECT_EQ(prompt(R"({"role":"assistant","content":null,)" + calls), empty);
  EXPECT_EQ(prompt(R"({"role":"assistant",)" + calls), empty);
  EXPECT_NE(empty.find("<|im_start|>assistant\n<tool_call>\n{\"name\": \"f\""), std::string::npos)
      << empty;
  const auto wrong = model.served().post(
      "/apply-template",
      R"({"messages":[{"role":"user","content":"x"},{"role":"user","content":7},{"role":"user","content":"y"}]})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.json["error"]["param"].text(), "messages");
  const std::string& message = wrong.json["error"]["message"].text();
  EXPECT_TRUE(message.starts_with("messages[1]: ")) << message;
  EXPECT_NE(message.find("cannot concatenate string and integer"), std::string::npos) << message;
}

TEST(RequestLog, HasALinePerRequestWithoutTextsAndKeys) {
  std::mutex mutex;
  std::condition_variable written;
  std::vector<std::string> lines;
  ServerOptions options = story_options();
  options.logs_requests = true;
  options.access.keys = {"sesame"};
  options.say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
    written.notify_all();
  };
  {
    const ServedModel served(1, options);
    const httplib::Headers key = {{"Authorization", "Bearer sesame"}};
    const std::string body = R"({"prompt":"Once upon a fox","max_tokens":7,"ignore_eos":true})";
    // A line follows its reply, so the next request waits for it.
    std::size_t requests = 0;
    const auto expect_status = [&](const ServedModel::Answer& answer, int status) {
      EXPECT_EQ(answer.status, status) << answer.body;
      ++requests;
      std::unique_lock lock(mutex);
      EXPECT_TRUE(written.wait_for(lock, std::chrono::minutes(1),
                                   [&] { return lines.size() == requests; }));
    };
    expect_status(served.post("/v1/completions", body, key), 200);
    expect_status(
        served.post("/v1/completions", body.substr(0, body.size() - 1) + R"(,"stream":true})", key),
        200);
    expect_status(served.post("/v1/completions", R"({"prompt":7})", key), 400);
    expect_status(served.get("/fox/secret?key=sesame", key), 404);
    expect_status(served.get("/v1/models/fox", key), 404);
    expect_status(served.get("/v1/models", {{"Authorization", "Bearer wrong"}}), 401);
  }
  const auto tokens = std::ssize(story_model().tokenizer().encode(
      "Once upon a fox", {.add_bos = story_model().tokenizer().add_bos()}));
  const std::string name = model_name_of(story_model().file().name());
  const std::string in = std::to_string(tokens), known = std::to_string(tokens - 1);
  const std::vector<std::string> expected = {
      " POST /v1/completions " + name + " 200 in " + in + " cached 0 out 7 ",
      " POST /v1/completions " + name + " 200 in " + in + " cached " + known + " out 7 ",
      " POST /v1/completions " + name + " 400 in 0 cached 0 out 0 ",
      " GET - - 404 in 0 cached 0 out 0 ",
      " GET /v1/models/NAME - 404 in 0 cached 0 out 0 ",
      " GET /v1/models - 401 in 0 cached 0 out 0 "};
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NE(lines[i].find("Z" + expected[i]), std::string::npos) << lines[i];
    EXPECT_TRUE(lines[i].ends_with(" ms")) << lines[i];
    for (const char* secret : {"fox", "sesame", "wrong", "secret"}) {
      EXPECT_EQ(lines[i].find(secret), std::string::npos) << lines[i];
    }
  }
}

TEST(IgnoreEos, BansTheTokenThatTheTemplateWritesAfterAReply) {
  ApiModel model = {.tokenizer = story_model().tokenizer()};
  model.vocabulary = model.tokenizer.size();
  model.stop.end_tokens = story_model().end_tokens();  // </s>, 2
  model.chat = std::make_shared<const ChatTemplate>(ChatTemplate::of_model(
      "{% for m in messages %}{{ m.role + ': ' + m.content + '<s>' }}{% endfor %}", "template"));
  const Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
                     {"ignore_eos", true}};
  const GenerationCall call = read_generation_call(CallStyle::chat, body, model);
  EXPECT_EQ(call.banned, (std::vector<Token>{2, 1}));
  EXPECT_EQ(call.stop.end_tokens, call.banned);
}

TEST(EchoedPrompts, HaveTheProbabilitiesOfTheirTokens) {
  const std::string prompt = "Once upon a time";
  const auto echoed = plain().post(
      "/v1/completions",
      R"({"prompt":"Once upon a time","echo":true,"logprobs":2,"max_tokens":1,"temperature":0})");
  ASSERT_EQ(echoed.status, 200) << echoed.body;
  const Json& logprobs = echoed.json["choices"][0]["logprobs"];
  const std::size_t count = logprobs["tokens"].size();
  const auto ids =
      story_model().tokenizer().encode(prompt, {.add_bos = story_model().tokenizer().add_bos()});
  ASSERT_EQ(count, ids.size() + 1);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  // Each probability must equal that of a reply to all preceding tokens.
  for (std::size_t i = 1; i < ids.size(); ++i) {
    Json before = Json::array();
    for (std::size_t k = 0; k < i; ++k) before.push_back(ids[k]);
    const Json body = {{"prompt", before},
                       {"max_tokens", 1},
                       {"logprobs", 0},
                       {"logit_bias", Json::object({{std::to_string(ids[i]), 10000}})}};
    const auto next = plain().post("/v1/completions", body);
    EXPECT_NEAR(logprobs["token_logprobs"][i].get<double>(),
                next.json["choices"][0]["logprobs"]["token_logprobs"][0].get<double>(), 1e-3)
        << i;
  }
  // With max_tokens 0 no text is generated; each of several prompts has a choice of its own.
  const auto none =
      plain().post("/v1/completions",
                   R"({"prompt":["Once upon","a cat"],"echo":true,"logprobs":0,"max_tokens":0})");
  ASSERT_EQ(none.status, 200) << none.body;
  EXPECT_EQ(none.json["choices"].size(), 2u);
  EXPECT_EQ(none.json["usage"]["completion_tokens"].get<int>(), 0);
  EXPECT_NE(none.json["choices"][0]["logprobs"]["tokens"],
            none.json["choices"][1]["logprobs"]["tokens"]);
}

// The text from a token's offset on begins with the token, also where decoding drops a space.
TEST(TextLogprobs, OffsetsAreThoseOfTheText) {
  ASSERT_TRUE(story_model().tokenizer().strips_leading_space());
  for (const char* prompt : {"Once upon a time", " Once", "  x y", "Tom\n said"}) {
    for (const bool echo : {true, false}) {
      Json body = {
          {"prompt", prompt}, {"echo", echo}, {"logprobs", 0}, {"max_tokens", 6}, {"seed", 1}};
      const auto answer = plain().post("/v1/completions", body);
      ASSERT_EQ(answer.status, 200) << answer.body;
      const Json& choice = answer.json["choices"][0];
      const Json& tokens = choice["logprobs"]["tokens"];
      const Json& offsets = choice["logprobs"]["text_offset"];
      const std::string& text = choice["text"].text();  // of ASCII
      ASSERT_GE(tokens.size(), 6u);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_TRUE(text.substr(offsets[i].get<std::size_t>()).starts_with(tokens[i].text()))
            << i << " in " << answer.body;
      }
      body["stream"] = true;
      bool done = false;
      Json streamed = Json::array();
      for (const Json& event : events_of(plain().post("/v1/completions", body).body, &done)) {
        const Json& part = event["choices"][0]["logprobs"];
        if (part.is_null()) continue;
        for (const JsonNode one : JsonNode(part["text_offset"])) streamed.push_back(one.value());
      }
      EXPECT_EQ(streamed, offsets);
    }
  }
}

// A character of two tokens: the first one has no text of its own.
TEST(TextLogprobs, StreamsHaveTheTokensOfPartsOfCharacters) {
  Json body = {{"prompt", "Once"}, {"grammar", "root ::= \"\u00e9\u00e9\""}, {"logprobs", 0}};
  const auto answer = plain().post("/v1/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& tokens = answer.json["choices"][0]["logprobs"]["token_logprobs"];
  ASSERT_GE(tokens.size(), 4u) << answer.body;
  body["stream"] = true;
  Json streamed = Json::array();
  bool done = false;
  for (const Json& event : events_of(plain().post("/v1/completions", body).body, &done)) {
    if (event["choices"].empty()) continue;
    const Json& part = event["choices"][0]["logprobs"];
    if (part.is_null()) continue;
    for (const JsonNode one : JsonNode(part["token_logprobs"])) streamed.push_back(one.value());
  }
  EXPECT_EQ(streamed, tokens);
}

TEST(TextLogprobs, OffsetsCountCharactersAndKeysAreDistinct) {
  const std::string prompt = "Zoë – 日本 x";
  const auto answer = plain().post(
      "/v1/completions",
      Json{{"prompt", prompt}, {"echo", true}, {"logprobs", 20}, {"max_tokens", 3}, {"seed", 1}}
          .dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& logprobs = answer.json["choices"][0]["logprobs"];
  std::size_t distinct = 0;
  for (std::size_t i = 1; i < logprobs["top_logprobs"].size(); ++i) {
    distinct += logprobs["top_logprobs"][i].size() == 20 ? 1 : 0;
  }
  EXPECT_EQ(distinct, logprobs["top_logprobs"].size() - 1);
  EXPECT_EQ(answer.body.find("\xEF\xBF\xBD"), std::string::npos);
  EXPECT_NE(answer.body.find("bytes:\\\\xe6"), std::string::npos);  // a part of 日
  const std::int64_t last =
      logprobs["text_offset"][logprobs["text_offset"].size() - 4].get<std::int64_t>();
  EXPECT_LE(last, 12);  // characters, which have 17 bytes
}

TEST(InterruptedReplies, SayWhatEndedThem) {
  ServerOptions options = story_options();
  options.most_seconds = 0.05;
  const ServedModel hasty(1, options);
  const std::string body = R"({"prompt":"Once","ignore_eos":true,"max_tokens":1000})";
  // The reasons are those of the APIs; a warning has the cause.
  const std::string cause = "the server's time limit ended the reply";
  const auto text = hasty.post("/v1/completions", body);
  EXPECT_EQ(text.json["choices"][0]["finish_reason"].text(), "length");
  EXPECT_EQ(text.json["warnings"][0].text(), cause);
  EXPECT_EQ(text.headers.find("X-Leq-Warnings")->second, cause);
  const auto native = hasty.post("/completion", body);
  EXPECT_EQ(native.json["stop_type"].text(), "limit");
  EXPECT_EQ(native.json["warnings"][0].text(), cause);
  ServedModel drained(1);
  RawClient client(drained.port());
  const std::string stream =
      R"({"prompt":"Once","ignore_eos":true,"max_tokens":1000,"stream":true})";
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
      std::to_string(stream.size()) + "\r\n\r\n" + stream);
  client.read_until("data: ");
  drained.server().stop(0);
  const std::string all = client.read_all();
  EXPECT_NE(all.find("\"finish_reason\":\"length\""), std::string::npos);
  EXPECT_NE(all.find("\"warnings\":[\"the server's shutdown ended the reply\"]"),
            std::string::npos);
}

TEST(Shutdown, IsToldByHealthAndToNewRequests) {
  ServedModel served(1);
  const std::string stream =
      R"({"prompt":"Once","ignore_eos":true,"max_tokens":900,"stream":true})";
  RawClient writer(served.port()), late(served.port()), health(served.port());
  writer.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
      std::to_string(stream.size()) + "\r\n\r\n" + stream);
  writer.read_until("data: ");
  std::thread stopping([&] { served.server().stop(20); });
  std::string answer;
  for (int i = 0; i < 200 && answer.find(" 503 ") == std::string::npos; ++i) {
    RawClient one(served.port());
    one.send(plain_request("GET", "/health"));
    answer = one.read_all();
  }
  late.send(plain_request("POST", "/v1/completions", R"({"prompt":"x"})"));
  const std::string refused = late.read_all();
  writer.close();
  stopping.join();
  EXPECT_NE(answer.find("\"code\":\"shutting_down\""), std::string::npos) << answer;
  EXPECT_NE(refused.find("\"code\":\"shutting_down\""), std::string::npos) << refused;
}

TEST(NativeEmbeddings, HaveLlamaServersForm) {
  const auto answer = plain().post("/embedding", R"({"content":["a cat","the sea"]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto known = plain().post("/v1/embeddings", R"({"input":["a cat","the sea"]})");
  ASSERT_EQ(answer.json.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answer.json[i]["index"].get<std::size_t>(), i);
    EXPECT_EQ(answer.json[i]["embedding"][0], known.json["data"][i]["embedding"]);
  }
  EXPECT_EQ(plain().post("/embedding", "{}").json["error"]["param"].text(), "input");
}

TEST(CrossOrigin, APreflightIsAnsweredWithTheHeadersThatItAsksFor) {
  ServerOptions options = story_options();
  options.access.origins = {"*"};
  const ServedModel served(1, options);
  auto client = served.client();
  const auto answer = client.Options(
      kChat, {{"Origin", "https://app.example"},
              {"Access-Control-Request-Headers", "authorization,content-type,x-stainless-os"}});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->get_header_value("Access-Control-Allow-Headers"),
            "authorization,content-type,x-stainless-os");
  const auto stranger = plain().client().Options(
      kChat,
      {{"Origin", "https://app.example"}, {"Access-Control-Request-Headers", "x-stainless-os"}});
  EXPECT_FALSE(stranger->has_header("Access-Control-Allow-Headers"));
}

HttpRequest request_to(const std::string& host) { return {.headers = {{"host", host}}}; }
bool is_let_in(const std::string& host, const AccessRules& rules) {
  try {
    check_site(request_to(host), rules);
    return true;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 403);
    return false;
  }
}

TEST(HostNames, OfOtherSitesAreRefusedOnEveryAddress) {
  for (const char* bound : {"0.0.0.0", "::", "192.0.2.7", "127.0.0.1", "localhost"}) {
    AccessRules rules;
    allow_own_names(rules, bound);
    for (const char* own : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080"}) {
      EXPECT_TRUE(is_let_in(own, rules)) << bound << ' ' << own;
    }
    for (const char* other :
         {"evil.example", "evil.example:8080", "127.0.0.1.evil.example", "1.2.3"}) {
      EXPECT_FALSE(is_let_in(other, rules)) << bound << ' ' << other;
    }
    // If other machines can reach the address, any IP address may be the server's own.
    const bool is_open = std::string(bound) == "0.0.0.0" || std::string(bound) == "::";
    for (const char* address : {"198.51.100.3:8080", "[2001:db8::1]"}) {
      if (is_open) {
        EXPECT_TRUE(is_let_in(address, rules)) << bound;
      }
    }
    rules.hosts.push_back("box.lan");
    EXPECT_TRUE(is_let_in("box.lan:8080", rules));
  }
  // A request with the key is not from a page of another site, so any host name is accepted.
  AccessRules with_key = {.keys = {"k"}};
  allow_own_names(with_key, "0.0.0.0");
  EXPECT_TRUE(is_let_in("llm.example", with_key));
}

TEST(Keys, AreCheckedBeforeTheBodyComes) {
  ServerOptions options = story_options();
  options.access.keys = {"sesame"};
  const ServedModel served(1, options);
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n";
  RawClient stranger(served.port());
  stranger.send(head + "\r\n");
  const std::string refused = stranger.read_until("}}");
  EXPECT_NE(refused.find("HTTP/1.1 401"), std::string::npos) << refused;
  EXPECT_NE(refused.find("invalid_api_key"), std::string::npos);
  RawClient continuing(served.port());
  continuing.send(head + "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(continuing.read_until("}}").find("100 Continue"), std::string::npos);
  RawClient friendly(served.port());
  friendly.send(head + "Authorization: Bearer sesame\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_NE(friendly.read_until("\r\n\r\n").find("100 Continue"), std::string::npos);
  // An error has the form of its API, also before the body comes.
  const auto refusal = [&](const std::string& first, const std::string& more, int bytes = 9) {
    RawClient client(served.port());
    client.send(first + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(bytes) +
                "\r\n" + more + "\r\n");
    const std::string text = client.read_until("\"}");
    return text.substr(std::min(text.size(), text.find("\r\n\r\n") + 4));
  };
  const std::string key = "X-Api-Key: sesame\r\n";
  EXPECT_TRUE(refusal("POST /v1/messages", "").starts_with(R"({"error":{"message":)"));
  EXPECT_TRUE(refusal("PUT /v1/messages", key).starts_with(R"({"error":{"message":)"));
  EXPECT_TRUE(refusal("POST /api/chat", "").starts_with(R"({"error":"the API key)"));
  EXPECT_TRUE(refusal("POST /api/pull", key).starts_with(R"({"error":"unknown path)"));
  EXPECT_TRUE(refusal("PUT /api/chat", "Origin: https://evil.example\r\n" + key)
                  .starts_with(R"({"error":"cross-origin)"));
  EXPECT_TRUE(refusal("POST /api/chat", key, 1 << 30).starts_with(R"({"error":"a body of)"));
  RawClient misled(served.port());
  misled.send(
      "POST /v1/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 15000000\r\n\r\n");
  EXPECT_NE(misled.read_until("}}").find("HTTP/1.1 403"), std::string::npos);
}

TEST(HttpManners, ErrorsHaveTheStatusAndHeadersOfHttp) {
  const auto wrong = plain().post("/v1/models", "{}");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.find("Allow")->second, "GET");
  EXPECT_EQ(wrong.json["error"]["message"].text(),
            "method POST is not allowed for /v1/models (allowed: GET)");
  EXPECT_TRUE(wrong.headers.contains("Date"));
  const auto unknown = plain().get("/v1/x");
  EXPECT_EQ(unknown.json["error"]["message"].text(), "unknown path /v1/x (see docs/server.md)");
  const auto model = plain().get("/v1/models/other");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(model.json["error"]["code"].text(), "model_not_found");
  const auto first = plain().get("/v1/models"), second = plain().get("/v1/models");
  EXPECT_EQ(first.json["data"][0]["created"], second.json["data"][0]["created"]);
  EXPECT_GT(first.json["data"][0]["max_model_len"].get<int>(), 0);
  RawClient hostless(plain().port()), zipped(plain().port());
  hostless.send("GET /health HTTP/1.1\r\n\r\n");
  EXPECT_NE(hostless.read_until("}}").find("HTTP/1.1 400"), std::string::npos);
  zipped.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: "
      "3\r\n\r\nabc");
  EXPECT_NE(zipped.read_until("}}").find("HTTP/1.1 415"), std::string::npos);
  const auto empty = plain().post(kChat, "");
  EXPECT_EQ(empty.json["error"]["message"].text(),
            "the request body is empty; expected a JSON object");
}

// An error that any conversation gets names no message; one in a converted request names no place,
// which would not be the client's.
TEST(BrokenTemplate, NamesNoMessageThatIsNotAtFault) {
  const CallingModel model({.name = "caller-ranges",
                            .chat_template = "{{ range(999999999) | list }}{% for m in messages %}"
                                             "{{ m.content }}{% endfor %}"});
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}},
                                     {{"role", "assistant"}, {"content", "b"}},
                                     {{"role", "user"}, {"content", "c"}}});
  const auto answer = model.served().post(kChat, Json::object({{"messages", messages}}));
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["message"].text().find("messages"), std::string::npos)
      << answer.body;
  const CallingTemplate no_b = {.name = "caller-picky",
                                .chat_template =
                                    "{% for m in messages %}{{ m.content }}{% if m.content == 'b' "
                                    "%}{{ raise_exception('no b') }}{% endif %}{% endfor %}"};
  const CallingModel picky(no_b);
  ServerOptions with_system = story_options();
  with_system.system = "a system message of the server's";
  for (const ServerOptions& options : {story_options(), with_system}) {
    const CallingModel one(no_b, options);
    const auto placed = one.served().post(kChat, Json::object({{"messages", messages}}));
    EXPECT_TRUE(placed.json["error"]["message"].text().starts_with("messages[1]: ")) << placed.body;
  }
  const auto foreign = picky.served().post("/v1/responses", Json::object({{"input", messages}}));
  EXPECT_EQ(foreign.status, 400);
  EXPECT_EQ(foreign.json["error"]["message"].text().find("messages["), std::string::npos)
      << foreign.body;
}

TEST(BrokenTemplate, IsToldWithItsReason) {
  const CallingModel broken(
      {.name = "caller-broken",
       .chat_template = "{% for m in messages %}{{ m | urlize }}{% endfor %}"});
  const auto answer = broken.served().post(kChat, asked("\"n\":1"));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.json["error"]["message"].text().find("urlize"), std::string::npos)
      << answer.body;
}

TEST(ThinkingRules, TokensOfReasoningAreCounted) {
  const auto counted = [](const std::string& more) {
    const auto answer = ask(thinker(), R"("temperature":0,)" + more);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json& usage = answer.json["usage"];
    if (!usage.contains("completion_tokens_details")) return 0;
    const int tokens = usage["completion_tokens_details"]["reasoning_tokens"].get<int>();
    EXPECT_LE(tokens, usage["completion_tokens"].get<int>());
    return tokens;
  };
  const int few = counted(R"("thinking_budget_tokens":5)"),
            more = counted(R"("thinking_budget_tokens":20)");
  EXPECT_GE(few, 5);
  EXPECT_GT(more, few);
  EXPECT_EQ(counted(R"("reasoning_effort":"none")"), 0);
}

// Also tokens whose text is held back at first: line ends, the beginning of a mark.
TEST(ThinkingRules, AReplyThatIsCutInItsReasoningIsReasoning) {
  const auto answer = ask(thinker(), R"("temperature":0)");
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.json["choices"][0]["message"]["content"].text(), "");
  const Json& usage = answer.json["usage"];
  EXPECT_EQ(usage["completion_tokens"].get<int>(), 120);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"].get<int>(), 120);
}

}  // namespace
}  // namespace leq::test::rules
