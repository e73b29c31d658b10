// Tests the endpoints of agents and editors: /v1/responses, /v1/messages, /v1/rerank. Their texts
// are compared with those of /v1/chat/completions, and streamed events with whole replies.
#include <gtest/gtest.h>

#include <cmath>

#include "processor_time.h"
#include "server/calling_model.h"
#include "server/dialects.h"
#include "server/raw_client.h"

namespace leq::test::agents {
namespace {

const CallingModel& hermes() {
  static const CallingModel model({.name = "caller-agents", .chat_template = kHermesTemplate});
  return model;
}
const CallingModel& thinker() {
  static const CallingModel model({.name = "caller-thinks", .chat_template = kThinkingTemplate});
  return model;
}

struct Event {
  std::string name;
  Json data;
};

// Parses "event: NAME" and "data: JSON" of each event; empty if an event has another form.
std::vector<Event> named_events(const std::string& stream) {
  std::vector<Event> events;
  for (const std::string_view event : split(stream, "\n\n")) {
    if (event.empty()) continue;
    const std::size_t end = event.find("\ndata: ");
    if (!event.starts_with("event: ") || end == std::string_view::npos) return {};
    events.push_back(
        {std::string(event.substr(7, end - 7)), parse_json(event.substr(end + 7), "an event")});
    if (events.back().data["type"].text() != events.back().name) return {};
  }
  return events;
}

const std::string kWeather =
    R"({"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},"required":["city"],"additionalProperties":false})";

Json response_body(Json more) {
  Json body = {{"model", "any"},
               {"input", "Tell a story."},
               {"seed", 7},
               {"temperature", 1},
               {"max_output_tokens", 24}};
  body.update(more);
  return body;
}
Json message_body(Json more) {
  Json body = {{"model", "any"},
               {"messages", Json::array({{{"role", "user"}, {"content", "Tell a story."}}})},
               {"seed", 7},
               {"temperature", 1},
               {"max_tokens", 24}};
  body.update(more);
  return body;
}

std::string chat_text(const CallingModel& model, const std::string& messages) {
  const auto answer = model.served().post(
      "/v1/chat/completions",
      R"({"seed":7,"temperature":1,"max_tokens":24,"messages":)" + messages + "}");
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json["choices"][0]["message"]["content"].text();
}

std::string prompt_of(const CallingModel& model, const std::string& messages,
                      const std::string& more = "") {
  return model.served()
      .post("/apply-template", R"({"messages":)" + messages + more + "}")
      .json["prompt"]
      .text();
}

TEST(Responses, SayWhatAChatSays) {
  const std::string text = chat_text(
      hermes(),
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Tell a story."}])");
  for (const std::string& body :
       {response_body({{"instructions", "Be brief."}}).dump(),
        response_body(
            {{"input", Json::array({{{"role", "developer"}, {"content", "Be brief."}},
                                    {{"type", "message"},
                                     {"role", "user"},
                                     {"content", Json::array({{{"type", "input_text"},
                                                               {"text", "Tell a story."}}})}}})}})
            .dump()}) {
    const auto answer = hermes().served().post("/v1/responses", body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json["object"].text(), "response");
    EXPECT_EQ(answer.json["status"].text(), "incomplete");
    EXPECT_EQ(answer.json["incomplete_details"]["reason"].text(), "max_output_tokens");
    ASSERT_EQ(answer.json["output"].size(), 1u);
    const Json& item = answer.json["output"][0];
    EXPECT_EQ(item["type"].text(), "message");
    EXPECT_EQ(item["content"][0]["type"].text(), "output_text");
    EXPECT_EQ(item["content"][0]["text"].text(), text);
    EXPECT_EQ(answer.json["usage"]["output_tokens"].get<int>(), 24);
    EXPECT_GT(answer.json["usage"]["input_tokens"].get<int>(), 5);
  }
}

TEST(Responses, StreamTheEventsOfTheirItems) {
  Json body = response_body(Json::object());
  const auto whole = hermes().served().post("/v1/responses", body);
  body["stream"] = true;
  const auto streamed = hermes().served().post("/v1/responses", body);
  const std::vector<Event> events = named_events(streamed.body);
  ASSERT_GT(events.size(), 8u) << streamed.body;
  EXPECT_EQ(events[0].name, "response.created");
  EXPECT_EQ(events[1].name, "response.in_progress");
  EXPECT_EQ(events[2].name, "response.output_item.added");
  EXPECT_EQ(events[3].name, "response.content_part.added");
  EXPECT_EQ(events.back().name, "response.incomplete");
  std::string text, done;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].data["sequence_number"].get<std::size_t>(), i);
    if (events[i].name == "response.output_text.delta") text += events[i].data["delta"].text();
    if (events[i].name == "response.output_text.done") done = events[i].data["text"].text();
  }
  const std::string& expected = whole.json["output"][0]["content"][0]["text"].text();
  EXPECT_EQ(text, expected);
  EXPECT_EQ(done, expected);
  const Json& last = events.back().data["response"];
  EXPECT_EQ(last["output"][0]["content"][0]["text"].text(), expected);
  EXPECT_EQ(last["output"].size(), 1u);
  EXPECT_EQ(last["usage"]["total_tokens"], whole.json["usage"]["total_tokens"]);
}

TEST(Responses, CallFunctionsAndReadTheirOutputs) {
  Json body = response_body(
      {{"max_output_tokens", 200}, {"tool_choice", "required"}, {"parallel_tool_calls", false}});
  body["tools"] = Json::array({{{"type", "function"},
                                {"name", "weather"},
                                {"parameters", parse_json(kWeather, "w")},
                                {"strict", false}},
                               {{"type", "web_search"}}});
  const auto answer = hermes().served().post("/v1/responses", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& call = answer.json["output"][0];
  EXPECT_EQ(call["type"].text(), "function_call");
  EXPECT_EQ(call["name"].text(), "weather");
  const std::string city = parse_json(call["arguments"].text(), "a")["city"].text();
  EXPECT_TRUE(city == "Oslo" || city == "Rome");
  EXPECT_EQ(answer.json["status"].text(), "completed");
  // A tool that is not a function is ignored with a warning.
  EXPECT_NE(answer.json["warnings"][0].text().find("web_search"), std::string::npos);
  EXPECT_NE(answer.headers.find("X-Leq-Warnings")->second.find("web_search"), std::string::npos);

  body["stream"] = true;
  const auto events = named_events(hermes().served().post("/v1/responses", body).body);
  std::string arguments, done;
  for (const Event& event : events) {
    if (event.name == "response.function_call_arguments.delta") {
      arguments += event.data["delta"].text();
    }
    if (event.name == "response.function_call_arguments.done")
      done = event.data["arguments"].text();
  }
  EXPECT_EQ(arguments, call["arguments"].text());
  EXPECT_EQ(done, arguments);
  EXPECT_EQ(events.back().name, "response.completed");

  // A call and its result are converted to the messages of a chat.
  const std::string input =
      R"([{"role":"user","content":"Hi"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},)"
      R"({"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Oslo\"}"},)"
      R"({"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"rain"}]}])";
  const auto counted =
      hermes().served().post("/v1/responses/input_tokens", R"({"input":)" + input + "}");
  const auto expected = hermes().served().post(
      "/v1/chat/completions/input_tokens",
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"","reasoning_content":"Hm.",)"
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"rain"}]})");
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json, expected.json);
}

TEST(Responses, HoldASchemaAfterReasoning) {
  Json body = response_body({{"max_output_tokens", 200}, {"thinking_budget_tokens", 8}});
  body["text"] = {
      {"format", {{"type", "json_schema"}, {"name", "w"}, {"schema", parse_json(kWeather, "w")}}}};
  const auto answer = thinker().served().post("/v1/responses", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.json["output"].size(), 2u) << answer.body;
  EXPECT_EQ(answer.json["output"][0]["type"].text(), "reasoning");
  EXPECT_FALSE(answer.json["output"][0]["content"][0]["text"].text().empty());
  const Json found = parse_json(answer.json["output"][1]["content"][0]["text"].text(), "reply");
  EXPECT_TRUE(found["city"].is_string());
  body["stream"] = true;
  std::string reasoning;
  for (const Event& event : named_events(thinker().served().post("/v1/responses", body).body)) {
    if (event.name == "response.reasoning_text.delta") reasoning += event.data["delta"].text();
  }
  EXPECT_EQ(reasoning, answer.json["output"][0]["content"][0]["text"].text());
}

TEST(Responses, RefuseByNameWhatTheyDoNotKeep) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"input":"x","previous_response_id":"resp_1"})", "previous_response_id"},
      {R"({"input":"x","conversation":"c"})", "conversation"},
      {R"({"input":"x","background":true})", "background"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})",
       "input"},
      {R"({"input":[{"role":"robot","content":"x"}]})", "input"},
      {R"({"input":[]})", "input"},
      {R"({})", "input"},
      {R"({"input":"x","tool_choice":{"type":"mcp"}})", "tool_choice"},
      {R"({"input":"x","reasoning":{"effort":"enormous"}})", "reasoning.effort"},
      {R"({"input":"x","max_output_tokens":"many"})", "max_output_tokens"}};
  for (const auto& [body, param] : cases) {
    const auto answer = hermes().served().post("/v1/responses", body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    EXPECT_EQ(answer.json["error"]["param"].text(), param) << body << answer.body;
  }
  EXPECT_EQ(hermes().served().get("/v1/responses/resp_1").status, 404);
}

TEST(Messages, SayWhatAChatSays) {
  const std::string text = chat_text(
      hermes(),
      R"([{"role":"system","content":"Be\nbrief."},{"role":"user","content":"Tell a story."}])");
  const Json system = Json::array({{{"type", "text"},
                                    {"text", "Be"},
                                    {"cache_control", {{"type", "ephemeral"}, {"ttl", "5m"}}}},
                                   {{"type", "text"}, {"text", "brief."}}});
  const auto answer =
      hermes().served().post("/v1/messages", message_body(Json::object({{"system", system}})));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["type"].text(), "message");
  EXPECT_EQ(answer.json["role"].text(), "assistant");
  EXPECT_EQ(answer.json["content"][0]["type"].text(), "text");
  EXPECT_EQ(answer.json["content"][0]["text"].text(), text);
  EXPECT_EQ(answer.json["stop_reason"].text(), "max_tokens");
  EXPECT_EQ(answer.json["usage"]["output_tokens"].get<int>(), 24);
  // input_tokens and cache_read_input_tokens add up to the whole prompt, however much was cached.
  const Json& usage = answer.json["usage"];
  const auto counted = hermes().served().post("/v1/messages/count_tokens",
                                              message_body(Json::object({{"system", system}})));
  EXPECT_EQ(counted.json["input_tokens"].get<int>(),
            usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
  const auto stopped = hermes().served().post(
      "/v1/messages",
      message_body({{"system", system}, {"stop_sequences", Json::array({text.substr(6, 4)})}}));
  EXPECT_EQ(stopped.json["stop_reason"].text(), "stop_sequence");
  EXPECT_EQ(stopped.json["stop_sequence"].text(), text.substr(6, 4));
}

TEST(Messages, StreamTheEventsOfTheirBlocks) {
  Json body =
      message_body({{"thinking", {{"type", "enabled"}, {"budget_tokens", 6}}}, {"max_tokens", 60}});
  const auto whole = thinker().served().post("/v1/messages", body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  body["stream"] = true;
  const auto events = named_events(thinker().served().post("/v1/messages", body).body);
  ASSERT_GT(events.size(), 8u);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(events[0].data["message"]["content"].size(), 0u);
  EXPECT_EQ(events[events.size() - 2].name, "message_delta");
  EXPECT_EQ(events.back().name, "message_stop");
  std::string reasoning, text;
  std::size_t started = 0, stopped = 0;
  for (const Event& event : events) {
    started += event.name == "content_block_start" ? 1 : 0;
    stopped += event.name == "content_block_stop" ? 1 : 0;
    if (event.name != "content_block_delta") continue;
    const Json& delta = event.data["delta"];
    if (delta["type"].text() == "thinking_delta") reasoning += delta["thinking"].text();
    if (delta["type"].text() == "text_delta") text += delta["text"].text();
  }
  ASSERT_EQ(whole.json["content"].size(), 2u) << whole.body;
  EXPECT_EQ(started, 2u);
  EXPECT_EQ(stopped, 2u);
  EXPECT_EQ(reasoning, whole.json["content"][0]["thinking"].text());
  EXPECT_EQ(text, whole.json["content"][1]["text"].text());
  EXPECT_EQ(events[events.size() - 2].data["delta"]["stop_reason"], whole.json["stop_reason"]);
}

TEST(Messages, UseToolsAndReadTheirResults) {
  Json body =
      message_body({{"max_tokens", 200}, {"tool_choice", {{"type", "tool"}, {"name", "weather"}}}});
  body["tools"] = Json::array({{{"name", "weather"},
                                {"description", "The weather of a city"},
                                {"input_schema", parse_json(kWeather, "w")},
                                {"cache_control", Json::object({{"type", "ephemeral"}})}},
                               {{"type", "web_search_20250305"}, {"name", "web_search"}}});
  const auto answer = hermes().served().post("/v1/messages", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json& use = answer.json["content"][0];
  EXPECT_EQ(use["type"].text(), "tool_use");
  EXPECT_EQ(use["name"].text(), "weather");
  EXPECT_TRUE(use["id"].text().starts_with("toolu_"));
  EXPECT_TRUE(use["input"]["city"].text() == "Oslo" || use["input"]["city"].text() == "Rome");
  EXPECT_EQ(answer.json["stop_reason"].text(), "tool_use");
  EXPECT_NE(answer.json["warnings"][0].text().find("web_search"), std::string::npos);
  body["stream"] = true;
  std::string partial;
  for (const Event& event : named_events(hermes().served().post("/v1/messages", body).body)) {
    if (event.name == "content_block_delta") partial += event.data["delta"]["partial_json"].text();
  }
  EXPECT_EQ(parse_json(partial, "input"), use["input"]);

  const auto counted = hermes().served().post(
      "/v1/messages/count_tokens",
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},)"
      R"({"type":"text","text":"Let me look."},{"type":"tool_use","id":"t1","name":"weather","input":{"city":"Oslo"}}]},)"
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"rain"}]},{"type":"text","text":"So?"}]}]})");
  const auto expected = hermes().served().post(
      "/v1/chat/completions/input_tokens",
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Let me look.","reasoning_content":"Hm.",)"
      R"("tool_calls":[{"id":"t1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"t1","content":"rain"},{"role":"user","content":"So?"}]})");
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json["input_tokens"], expected.json["input_tokens"]);
}

// A cut call's input is what was written of it, as an object; it is streamed piece by piece.
TEST(Messages, ACutCallHasWhatThereIs) {
  Json body =
      message_body({{"max_tokens", 60}, {"tool_choice", {{"type", "tool"}, {"name", "write"}}}});
  body["tools"] = Json::array(
      {{{"name", "write"},
        {"input_schema",
         parse_json(
             R"({"type":"object","properties":{"text":{"type":"string","minLength":900}},"required":["text"]})",
             "w")}}});
  const auto answer = hermes().served().post("/v1/messages", body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["stop_reason"].text(), "max_tokens");
  ASSERT_EQ(answer.json["content"].size(), 1u) << answer.body;
  const std::string& text = answer.json["content"][0]["input"]["text"].text();
  EXPECT_GT(text.size(), 20u);
  body["stream"] = true;
  std::string partial;
  std::size_t pieces = 0;
  for (const Event& event : named_events(hermes().served().post("/v1/messages", body).body)) {
    if (event.name != "content_block_delta") continue;
    partial += event.data["delta"]["partial_json"].text();
    ++pieces;
  }
  EXPECT_GT(pieces, 10u);
  EXPECT_EQ(parse_json(partial + "\"}", "input")["text"].text(), text);
}

// Codex' custom tools have a text as input, tools of a namespace its name and their own.
TEST(Responses, KnowCustomToolsAndNamespaces) {
  Json body = response_body({{"max_output_tokens", 120}});
  body["tools"] = parse_json(
      R"([{"type":"custom","name":"apply_patch","description":"A patch."},
          {"type":"namespace","name":"mcp__fs","description":"Files.","tools":[
          {"type":"function","name":"read","parameters":{"type":"object","properties":{"n":{"type":"integer"}},
          "required":["n"],"additionalProperties":false}}]}])",
      "tools");
  body["tool_choice"] = parse_json(
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","namespace":"mcp__fs","name":"read"}]})",
      "choice");
  body["parallel_tool_calls"] = false;
  const auto read = hermes().served().post("/v1/responses", body);
  ASSERT_EQ(read.status, 200) << read.body;
  const Json& call = read.json["output"][0];
  EXPECT_EQ(call["type"].text(), "function_call");
  EXPECT_EQ(call["name"].text(), "read");
  EXPECT_EQ(call["namespace"].text(), "mcp__fs");
  EXPECT_TRUE(parse_json(call["arguments"].text(), "a")["n"].is_number_integer());

  body["tool_choice"] = {{"type", "custom"}, {"name", "apply_patch"}};
  const auto patch = hermes().served().post("/v1/responses", body);
  ASSERT_EQ(patch.status, 200) << patch.body;
  const Json& item = patch.json["output"][0];
  EXPECT_EQ(item["type"].text(), "custom_tool_call");
  EXPECT_EQ(item["name"].text(), "apply_patch");
  EXPECT_FALSE(item.contains("arguments"));
  body["stream"] = true;
  std::string input, done;
  for (const Event& event : named_events(hermes().served().post("/v1/responses", body).body)) {
    if (event.name == "response.custom_tool_call_input.delta") input += event.data["delta"].text();
    if (event.name == "response.custom_tool_call_input.done") done = event.data["input"].text();
  }
  EXPECT_EQ(input, item["input"].text());
  EXPECT_EQ(done, input);
}

TEST(Messages, TellErrorsInAnthropicsForm) {
  const auto asked = [](const std::string& more) {
    return R"({"messages":[{"role":"user","content":"x"}],)" + more + "}";
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{}", "messages"},
      {R"({"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})", "image"},
      {R"({"messages":[{"role":"robot","content":"x"}]})", "roles"},
      {asked(R"("max_tokens":"x")"), "max_tokens: "},
      {asked(R"("max_tokens":0)"), "max_tokens: "},
      {asked(R"("stop_sequences":"abc")"), "stop_sequences: "},
      {asked(R"("stop_sequences":[5])"), "stop_sequences: "},
      {asked(R"("thinking":{"type":"foo"})"), "thinking: "},
      {asked(R"("max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9})"),
       "thinking.budget_tokens: expected fewer than max_tokens, found 9"},
      {asked(R"("thinking":{"type":"enabled","budget_tokens":"x"})"), "thinking.budget_tokens: "},
      {asked(R"("output_config":{"effort":"very"})"), "output_config.effort: "},
      {asked(R"("output_config":{"format":{"type":"x"}})"), "output_config.format: "},
      {asked(R"("tools":[{"name":"f","input_schema":5}])"), "input_schema: "},
      {asked(R"("tools":[{"input_schema":{}}])"), R"(found {"input_schema":{}})"},
      {asked(R"("mcp_servers":[{}])"), "mcp_servers"}};
  for (const auto& [body, part] : cases) {
    const auto answer = hermes().served().post("/v1/messages", body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json["type"].text(), "error");
    EXPECT_EQ(answer.json["error"]["type"].text(), "invalid_request_error");
    EXPECT_NE(answer.json["error"]["message"].text().find(part), std::string::npos) << answer.body;
  }
}

// A request without max_tokens, which Anthropic's service refuses, is answered with a warning.
TEST(Messages, NeedNoLimit) {
  ServerOptions options = story_options();
  options.max_tokens = 3;
  const CallingModel model({.name = "caller-limited", .chat_template = kHermesTemplate}, options);
  const auto answer =
      model.served().post("/v1/messages", R"({"messages":[{"role":"user","content":"x"}]})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json["usage"]["output_tokens"].get<int>(), 3);
  EXPECT_NE(answer.json["warnings"][0].text().find("max_tokens: "), std::string::npos);
}

// A tool's result whose call is not in the conversation keeps its text.
// However many are listed, the chat has each of at most 256 tools once.
TEST(Responses, AllowEachOfALimitedNumberOfToolsOnce) {
  const Json one = {{"type", "function"}, {"name", "x"}};
  const auto body = [&](std::size_t functions, std::size_t of_space, std::size_t allowed) {
    Json tools = Json::Array(functions, one);
    tools.push_back({{"type", "namespace"}, {"name", "s"}, {"tools", Json::Array(of_space, one)}});
    return Json{{"input", "x"},
                {"tools", tools},
                {"tool_choice", {{"type", "allowed_tools"}, {"tools", Json::Array(allowed, one)}}}};
  };
  const Json fits = body(200, 56, 300), many = body(200, 57, 1);
  const ForeignChat chat = chat_of_responses(fits);
  EXPECT_EQ(chat.body["tools"].size(), 256u);
  EXPECT_EQ(chat.body["tool_choice"]["allowed_tools"]["tools"].size(), 200u);
  EXPECT_THROW(chat_of_responses(many), Error);
  const Json function = {{"type", "function"}, {"function", Json::object({{"name", "x"}})}};
  const auto answer = hermes().served().post(
      "/v1/chat/completions",
      Json{{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
           {"tools", Json::array({function})},
           {"tool_choice",
            {{"type", "allowed_tools"},
             {"allowed_tools", Json::object({{"tools", Json::Array(257, function)}})}}}});
  ASSERT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json["error"]["message"].text(), "tool_choice: at most 256 tools");
}

TEST(Messages, NoteAtMost32Things) {
  Json messages = Json::array();
  for (int i = 0; i < 100; ++i) {
    const Json part = Json::object({{"type", "kind" + std::to_string(i / 2)}});
    messages.push_back({{"role", "user"}, {"content", Json::array({part})}});
  }
  messages.push_back({{"role", "assistant"}, {"content", "a"}});
  messages.push_back({{"role", "user"}, {"content", "b"}});
  const Json body = {{"max_tokens", 1}, {"messages", messages}};
  const std::vector<std::string> notes = chat_of_messages(body).notes;
  ASSERT_EQ(notes.size(), 32u);
  EXPECT_TRUE(notes[0].ends_with("kind0")) << notes[0];
  EXPECT_TRUE(notes[31].ends_with("kind31")) << notes[31];
}

TEST(OllamaChats, ResultsAnswerTheCallsOfTheirNames) {
  const auto calls = [](const std::vector<std::string>& names) {
    Json list = Json::array();
    for (const std::string& name : names) {
      list.push_back(Json::object({{"function", Json::object({{"name", name}})}}));
    }
    return Json{{"role", "assistant"}, {"tool_calls", std::move(list)}};
  };
  const auto result = [](const std::string& name) {
    return Json{{"role", "tool"}, {"tool_name", name}, {"content", "x"}};
  };
  const auto ids = [](const Json& messages) {
    const Json body = Json::object({{"messages", messages}});
    const ForeignChat chat = chat_of_ollama_chat(body);
    std::vector<std::string> answered;
    for (const Json& one : chat.body["messages"]) {
      if (one.contains("tool_call_id")) answered.push_back(one["tool_call_id"].text());
    }
    return answered;
  };
  EXPECT_EQ(
      ids(Json::array({calls({"a", "b", "a", "c"}), result("a"), result("z"), result("a"),
                       result("z"), result("a")})),
      (std::vector<std::string>{"c00000001", "c00000002", "c00000003", "c00000004", "c00000000"}));
  // Ids, where a client has some, tell more than names.
  Json with_ids = calls({"a", "a"});
  with_ids["tool_calls"][0]["id"] = "first";
  with_ids["tool_calls"][1]["id"] = "second";
  Json second = result("a");
  second["tool_call_id"] = "second";
  EXPECT_EQ(ids(Json::array({with_ids, second, result("a")})),
            (std::vector<std::string>{"c00000002", "c00000001"}));
  // Many calls of one message are no more work than many messages of one call.
  constexpr std::size_t kMany = 40'000;
  Json one = Json::array({calls(std::vector<std::string>(kMany, "a"))}), pairs = Json::array();
  for (std::size_t i = 0; i < kMany; ++i) {
    one.push_back(result("z"));
    pairs.push_back(calls({"a"}));
    pairs.push_back(result("z"));
  }
  const double few = processor_seconds([&] { (void)ids(pairs); }),
               all = processor_seconds([&] { (void)ids(one); });
  EXPECT_LT(all, 5 * few);
}

TEST(OllamaChats, NoteLogProbabilitiesAndTakeAnEmptyContext) {
  const auto answer = hermes().served().post(
      "/api/generate",
      R"({"prompt":"x","stream":false,"context":[],"logprobs":true,"options":{"num_predict":1}})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.json["warnings"].dump().find("logprobs: "), std::string::npos) << answer.body;
}

TEST(OllamaChats, NoteImagesWhereThereAreSome) {
  for (const bool some : {false, true}) {
    Json message = {{"role", "user"}, {"content", "x"}, {"images", Json::array()}};
    if (some) message["images"].push_back("eA==");
    const Json body = {{"messages", Json::array({message})}};
    EXPECT_EQ(chat_of_ollama_chat(body).notes.empty(), !some);
  }
}

// Settings are f32 numbers, and the storyteller has 5,475,584 parameters.
TEST(NumbersOfAllApis, AreTheShortestAndRounded) {
  const ServedModel& served = hermes().served();
  const auto answer = served.post("/v1/responses", response_body({{"top_p", 0.7}}));
  EXPECT_EQ(answer.json["top_p"].dump(), "0.7") << answer.body;
  const Json props = served.get("/props").json;
  const Json& params = props["default_generation_settings"]["params"];
  EXPECT_EQ(params["top_k"].dump().find('.'), std::string::npos) << params.dump();
  EXPECT_LT(params["temperature"].dump().size(), 6u) << params.dump();
  EXPECT_EQ(served.get("/api/tags").json["models"][0]["details"]["parameter_size"].text(), "5.5M");
}

// A setting applies in every API, also under the names of other servers.
TEST(SamplingSettingsOfAllApis, AreThoseOfAChat) {
  std::vector<std::string> names = {"mirostat_tau", "mirostat_eta", "repetition_penalty", "seed",
                                    "logit_bias"};
  for (const SamplingParameter& parameter : kSamplingParameters) names.emplace_back(parameter.name);
  Json settings = Json::object();
  for (const std::string& name : names) settings[name] = settings.size();
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  Json response = settings, message = settings;
  response["input"] = "x";
  message["messages"] = messages;
  const Json chat = {{"messages", messages}, {"options", settings}},
             text = {{"prompt", "x"}, {"options", settings}};
  for (const ForeignChat& foreign : {chat_of_responses(response), chat_of_messages(message),
                                     chat_of_ollama_chat(chat), chat_of_ollama_generate(text)}) {
    for (const std::string& name : names) EXPECT_EQ(foreign.body[name], settings[name]) << name;
  }
}

TEST(Orphans, AreTextsOfTheUserInAllApis) {
  const std::string result = R"({"role":"tool","tool_call_id":"call_9","content":"It rains."})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/v1/chat/completions", R"({"messages":[)" + result + "]"},
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[)"
       R"({"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},)" +
           result + "]"},
      {"/v1/responses",
       R"({"input":[{"type":"function_call_output","call_id":"call_9","output":"It rains."}])"},
      {"/v1/messages",
       R"({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_9","content":"It rains."}]}])"},
      {"/api/chat", R"({"stream":false,"options":{"num_predict":2},"messages":[)" + result + "]"}};
  for (const auto& [path, body] : cases) {
    const char* most = path == "/v1/responses" ? "max_output_tokens" : "max_tokens";
    const auto answer = hermes().served().post(path, body + R"(,")" + most + R"(":2})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    const std::string warning = answer.headers.find("X-Leq-Warnings")->second,
                      member = path == "/v1/responses" ? "input" : "messages";
    EXPECT_NE(warning.find(member + ": a tool's result without its call"), std::string::npos)
        << warning;
  }
  const std::string said =
      R"({"role":"user","content":"<tool_response>\nIt rains.\n</tool_response>"})";
  EXPECT_EQ(prompt_of(hermes(), "[" + result + "]"), prompt_of(hermes(), "[" + said + "]"));
}

TEST(Rerank, OrdersDocumentsByTheCosineOfTheirEmbeddings) {
  const ServedModel served;
  const std::vector<std::string> texts = {"a cat", "the sea was calm", "a little cat sat"};
  const auto vectors = served.post(
      "/v1/embeddings", Json{{"input", Json::array({"a cat", texts[0], texts[1], texts[2]})}});
  const auto answer = served.post(
      "/v1/rerank",
      Json{{"query", "a cat"},
           {"documents", Json::array({texts[0], texts[1], Json::object({{"text", texts[2]}})})},
           {"return_documents", true}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_EQ(answer.json["results"].size(), 3u);
  EXPECT_EQ(answer.json["results"][0]["index"].get<int>(), 0);
  double before = 2;
  for (const Json& result : answer.json["results"]) {
    const auto index = result["index"].get<std::size_t>();
    const auto a = vectors.json["data"][0]["embedding"].get<std::vector<double>>();
    const auto b = vectors.json["data"][index + 1]["embedding"].get<std::vector<double>>();
    double cosine = 0;
    for (std::size_t i = 0; i < a.size(); ++i) cosine += a[i] * b[i];
    EXPECT_NEAR(result["relevance_score"].get<double>(), cosine, 1e-5);
    EXPECT_LE(result["relevance_score"].get<double>(), before);
    EXPECT_EQ(result["document"]["text"].text(), texts[index]);
    before = result["relevance_score"].get<double>();
  }
  const Json top = {{"query", "a cat"}, {"documents", Json::array({"x", "y"})}, {"top_n", 1}};
  EXPECT_EQ(served.post("/v1/rerank", top).json["results"].size(), 1u);
  EXPECT_EQ(served.post("/v1/rerank", R"({"query":"x","documents":[]})").status, 400);
}

TEST(Embeddings, TakeTwoThousandInputsAndFewerDimensions) {
  const ServedModel served;
  Json inputs = Json::array();
  for (int i = 0; i < 300; ++i) inputs.push_back("a");
  const auto many = served.post("/v1/embeddings", Json::object({{"input", inputs}}));
  ASSERT_EQ(many.status, 200) << many.body;
  EXPECT_EQ(many.json["data"].size(), 300u);
  for (int i = 0; i < 1749; ++i) inputs.push_back("a");
  EXPECT_EQ(served.post("/v1/embeddings", Json::object({{"input", inputs}})).status, 400);
  const auto whole = served.post("/v1/embeddings", R"({"input":"a cat"})");
  const auto some = served.post("/v1/embeddings", R"({"input":"a cat","dimensions":16})");
  const auto all = whole.json["data"][0]["embedding"].get<std::vector<double>>();
  const auto few = some.json["data"][0]["embedding"].get<std::vector<double>>();
  ASSERT_EQ(few.size(), 16u);
  double length = 0;
  for (int i = 0; i < 16; ++i) length += all[i] * all[i];
  for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(few[i], all[i] / std::sqrt(length), 1e-5);
  const auto too_long =
      served.post("/v1/embeddings", Json::object({{"input", std::string(20000, 'x')}}));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(too_long.json["error"]["code"].text(), "context_length_exceeded");
}

TEST(Streams, SayThatTheServerIsThereWhileNothingComes) {
  ServerOptions options = story_options();
  options.ping_seconds = 0.01;  // far below the time that the writers take
  const CallingModel model({.name = "caller-pinged", .chat_template = kHermesTemplate}, options);
  // Both sequences of the server are generating, so the third request waits.
  std::vector<RawClient> writers;
  const auto post = [&](const std::string& path, const std::string& body) {
    writers.emplace_back(model.served().port());
    writers.back().send("POST " + path +
                        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                        "Content-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  for (int i = 0; i < 2; ++i) {
    post("/v1/completions",
         R"({"prompt":"Once","ignore_eos":true,"max_tokens":900,"stream":true})");
    writers.back().read_until("data: ");
  }
  post("/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":2})");
  post("/v1/messages",
       R"({"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":2})");
  EXPECT_NE(writers[2].read_until(": ping\n\n").find(": ping\n\n"), std::string::npos);
  // The waiting client's stream must contain at least three ping events.
  const std::string waiting = writers[3].read_until("message_stop");
  EXPECT_GT(split(waiting, "event: ping\n").size(), 3u) << waiting;
}

TEST(Developer, IsTheSystemWhereTheTemplateKnowsNoOther) {
  const std::string plain =
      R"([{"role":"system","content":"Be brief."},{"role":"user","content":"x"}])";
  const std::string template_of_roles =
      "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\n{% endfor %}";
  const CallingModel roles({.name = "caller-roles", .chat_template = template_of_roles});
  EXPECT_EQ(prompt_of(roles, replace_all(plain, "system", "developer")), prompt_of(roles, plain));
  const CallingModel knows(
      {.name = "caller-developer", .chat_template = "{# developer #}" + template_of_roles});
  const std::string known = prompt_of(knows, replace_all(plain, "system", "developer"));
  EXPECT_NE(known.find("developer: Be"), std::string::npos) << known;
}

}  // namespace
}  // namespace leq::test::agents
