// Sessions of coding agents as in their public sources: Codex CLI with /v1/responses, Claude Code
// with /v1/messages. The second request of a session contains the items that the first stream sent.
#include <gtest/gtest.h>

#include <set>

#include "server/calling_model.h"
#include "server/raw_client.h"
#include "server/served_model.h"

namespace leq::test {
namespace {

const CallingModel& agents_model() {
  static const CallingModel model = [] {
    ServerOptions options = story_options();
    options.seed = 11;
    options.max_tokens = 40;  // agents set no limit, or one beyond any context
    return CallingModel({.name = "caller-agents", .chat_template = kHermesTemplate}, options);
  }();
  return model;
}

struct Reply {
  std::string head;
  std::vector<Json> events;
};

// Returns the data of a stream's events. The test fails unless each event is a line "event: NAME"
// and a line "data: JSON" whose "type" is NAME.
Reply ask(const std::string& path, const std::string& headers, const Json& body) {
  const std::string text = body.dump();
  RawClient client(agents_model().served().port());
  client.send("POST " + path + " HTTP/1.1\r\nhost: 127.0.0.1\r\n" + headers +
              "content-type: application/json\r\naccept: text/event-stream\r\nconnection: close\r\n"
              "content-length: " +
              std::to_string(text.size()) + "\r\n\r\n" + text);
  const std::string all = client.read_all(60);
  const std::size_t end = all.find("\r\n\r\n");
  Reply reply = {all.substr(0, end), {}};
  EXPECT_NE(reply.head.find("200 OK"), std::string::npos) << all.substr(0, 2000);
  // The stream has chunks: a line with a length, followed by that many bytes.
  std::string stream;
  for (std::size_t at = end + 4; at < all.size();) {
    const std::size_t bytes = std::stoul(all.substr(at), nullptr, 16);
    const std::size_t begin = all.find("\r\n", at) + 2;
    stream += all.substr(begin, bytes);
    at = begin + bytes + 2;
  }
  for (const std::string_view event : split(stream, "\n\n")) {
    if (event.empty() || event.starts_with(":")) continue;
    const std::size_t data = event.find("\ndata: ");
    EXPECT_TRUE(event.starts_with("event: ") && data != std::string_view::npos) << event;
    reply.events.push_back(parse_json(event.substr(data + 7), "an event"));
    EXPECT_EQ(reply.events.back()["type"].text(), event.substr(7, data - 7));
  }
  return reply;
}

// ---- Codex CLI ----------------------------------------------------------------------------------

const std::string kCodexHeaders =
    "authorization: Bearer none\r\noriginator: codex_cli_rs\r\nversion: 0.145.0\r\n"
    "user-agent: codex_cli_rs/0.145.0 (Debian 12; x86_64) xterm\r\n"
    "conversation_id: 0199a213\r\nsession_id: 0199a213\r\n";

Json input_message(const std::string& role, const std::string& text) {
  return {{"type", "message"},
          {"role", role},
          {"content", Json::array({{{"type", "input_text"}, {"text", text}}})}};
}

Json codex_request(const Json& input) {
  const Json command = {{"type", "function"},
                        {"name", "exec_command"},
                        {"description", "Runs a command in a PTY."},
                        {"strict", false},
                        {"parameters",
                         {{"type", "object"},
                          {"properties",
                           {{"cmd", {{"type", "string"}, {"description", "Shell command."}}},
                            {"yield_time_ms", Json::object({{"type", "number"}})},
                            {"tty", Json::object({{"type", "boolean"}})}}},
                          {"required", Json::array({"cmd"})},
                          {"additionalProperties", false}}}};
  const Json patch = {{"type", "custom"},
                      {"name", "apply_patch"},
                      {"description", "A patch."},
                      {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "x"}}}};
  const Json search = {{"type", "web_search"}, {"external_web_access", false}};
  return {{"model", "gpt-5.2-codex"},
          {"instructions", "You are a coding agent."},
          {"input", input},
          {"tools", Json::array({command, patch, search})},
          {"tool_choice", "auto"},
          {"parallel_tool_calls", false},
          {"reasoning", {{"effort", "medium"}, {"summary", "auto"}}},
          {"store", false},
          {"stream", true},
          {"include", Json::array({"reasoning.encrypted_content"})},
          {"prompt_cache_key", "0199a213"},
          {"text", Json::object({{"verbosity", "medium"}})},
          {"client_metadata", Json::object({{"x-codex-turn", "1"}})}};
}

// The parts of a stream that Codex reads: completed items, and the last event with its counts.
struct CodexTurn {
  std::vector<Json> items;
  std::int64_t cached = -1, total = 0;
};

void take_item(const Json& item, CodexTurn& turn) {
  const std::string type = item["type"].text();
  if (type == "message") {
    EXPECT_EQ(item["role"].text(), "assistant");
    EXPECT_EQ(item["content"][0]["type"].text(), "output_text");
    EXPECT_TRUE(item["content"][0]["text"].is_string());
  } else if (type == "function_call") {
    EXPECT_TRUE(item["name"].is_string() && item["call_id"].is_string() &&
                item["arguments"].is_string());
  } else {
    ADD_FAILURE() << item.dump();
  }
  turn.items.push_back(item);
}

CodexTurn codex(const Json& input) {
  const Reply reply = ask("/v1/responses", kCodexHeaders, codex_request(input));
  CodexTurn turn;
  EXPECT_FALSE(reply.events.empty());
  if (reply.events.empty()) return turn;
  EXPECT_EQ(reply.events[0]["type"].text(), "response.created");
  EXPECT_TRUE(reply.events[0]["response"].is_object());
  for (const Json& event : reply.events) {
    if (event["type"].text() == "response.output_item.done") take_item(event["item"], turn);
  }
  const Json& last = reply.events.back();
  const std::set<std::string> ends = {"response.completed", "response.incomplete"};
  EXPECT_TRUE(ends.contains(last["type"].text())) << last.dump();
  const Json& response = last["response"];
  EXPECT_TRUE(response["id"].is_string());
  turn.total = response["usage"]["total_tokens"].get<std::int64_t>();
  turn.cached = response["usage"]["input_tokens_details"]["cached_tokens"].get<std::int64_t>();
  EXPECT_EQ(turn.total, response["usage"]["input_tokens"].get<std::int64_t>() +
                            response["usage"]["output_tokens"].get<std::int64_t>());
  EXPECT_TRUE(response["usage"]["output_tokens_details"]["reasoning_tokens"].is_number());
  return turn;
}

TEST(CodexSession, GoesOnWithTheItemsOfItsReplies) {
  Json input = Json::array();
  input.push_back(input_message("developer", "<permissions>read-only</permissions>"));
  input.push_back(
      input_message("user", "<environment_context><cwd>/src</cwd></environment_context>"));
  input.push_back(input_message("user", "Which files are here?"));
  const CodexTurn first = codex(input);
  ASSERT_FALSE(first.items.empty());
  for (const Json& item : first.items) input.push_back(item);
  // The client stores a turn with a call as its reasoning, the call, and the call's result.
  input.push_back({{"type", "reasoning"},
                   {"summary", Json::array({{{"type", "summary_text"}, {"text", "List them."}}})},
                   {"encrypted_content", nullptr}});
  input.push_back({{"type", "function_call"},
                   {"name", "exec_command"},
                   {"arguments", R"({"cmd":"ls"})"},
                   {"call_id", "call_1"}});
  input.push_back(
      {{"type", "function_call_output"}, {"call_id", "call_1"}, {"output", "a.c\nb.c"}});
  input.push_back(input_message("user", "Read the first."));
  const CodexTurn second = codex(input);
  EXPECT_FALSE(second.items.empty());
  EXPECT_GT(second.cached, 20);  // the prefix was cached
  EXPECT_GT(second.total, first.total);
}

TEST(CodexSession, IsToldWhatIsLeftOutAndWhatIsTooLong) {
  const Reply reply = ask("/v1/responses", kCodexHeaders,
                          codex_request(Json::array({input_message("user", "Hi")})));
  EXPECT_NE(reply.head.find("X-Leq-Warnings: tools: web_search is left out"), std::string::npos)
      << reply.head;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += " word";
  const auto refused = agents_model().served().post(
      "/v1/responses", codex_request(Json::array({input_message("user", text)})));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json["error"]["code"].text(), "context_length_exceeded");
}

// ---- Claude Code --------------------------------------------------------------------------------

const std::string kClaudeHeaders =
    "x-api-key: none\r\nanthropic-version: 2023-06-01\r\nx-app: cli\r\n"
    "anthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14\r\n"
    "anthropic-dangerous-direct-browser-access: true\r\nuser-agent: claude-cli/2.1.37 (external, "
    "cli)\r\n"
    "x-stainless-lang: js\r\nx-stainless-runtime: node\r\n";

Json text_block(const std::string& text, bool cached = false) {
  Json block = {{"type", "text"}, {"text", text}};
  if (cached) block["cache_control"] = Json::object({{"type", "ephemeral"}});
  return block;
}

Json claude_request(const Json& messages, const std::string& hash) {
  const Json bash = {{"name", "Bash"},
                     {"description", "Executes a command."},
                     {"input_schema",
                      {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"type", "object"},
                       {"properties",
                        {{"command", {{"type", "string"}, {"description", "The command"}}},
                         {"timeout", {{"type", "number"}, {"description", "In ms"}}},
                         {"run_in_background", Json::object({{"type", "boolean"}})}}},
                       {"required", Json::array({"command"})},
                       {"additionalProperties", false}}}};
  const Json search = {{"type", "web_search_20250305"}, {"name", "web_search"}, {"max_uses", 8}};
  return {{"model", "claude-sonnet-4-5-20250929"},
          {"max_tokens", 32000},
          {"stream", true},
          {"system", Json::array({text_block("x-anthropic-billing-header: cc_version=2.1.37.0d9; "
                                             "cc_entrypoint=cli; cch=" +
                                             hash + ";"),
                                  text_block("You are a coding assistant.", true)})},
          {"messages", messages},
          {"tools", Json::array({bash, search})},
          {"thinking", {{"type", "enabled"}, {"budget_tokens", 31999}}},
          {"metadata", Json::object({{"user_id", "user_0_account__session_1"}})},
          {"context_management",
           {{"edits", Json::array({{{"type", "clear_thinking_20251015"}, {"keep", "all"}}})}}}};
}

// The parts of a stream that Claude Code reads: blocks joined from their deltas, and the counts.
struct ClaudeTurn {
  Json content = Json::array();
  std::int64_t cached = -1;
  std::string stop_reason;
};

ClaudeTurn claude(const Json& request) {
  const Reply reply = ask("/v1/messages?beta=true", kClaudeHeaders, request);
  ClaudeTurn turn;
  EXPECT_FALSE(reply.events.empty());
  for (const Json& event : reply.events) {
    const std::string type = event["type"].text();
    if (type == "message_start") {
      EXPECT_EQ(event["message"]["role"].text(), "assistant");
      EXPECT_TRUE(event["message"]["usage"]["input_tokens"].is_number());
    } else if (type == "content_block_start") {
      EXPECT_EQ(event["index"].get<std::size_t>(), turn.content.size());
      turn.content.push_back(event["content_block"]);
    } else if (type == "content_block_delta") {
      Json& block = turn.content[turn.content.size() - 1];
      EXPECT_EQ(event["delta"]["type"].text(), "text_delta");
      block["text"] = block["text"].text() + event["delta"]["text"].text();
    } else if (type == "message_delta") {
      turn.stop_reason = event["delta"]["stop_reason"].text();
      turn.cached = event["usage"]["cache_read_input_tokens"].get<std::int64_t>();
      EXPECT_GT(event["usage"]["output_tokens"].get<int>(), 0);
    }
  }
  EXPECT_EQ(reply.events.back()["type"].text(), "message_stop");
  return turn;
}

TEST(ClaudeCodeSession, GoesOnWithTheBlocksOfItsReplies) {
  Json messages = Json::array();
  messages.push_back({{"role", "user"},
                      {"content", Json::array({text_block("<system-reminder>Be brief."
                                                          "</system-reminder>"),
                                               text_block("Which files are here?", true)})}});
  const ClaudeTurn first = claude(claude_request(messages, "fa690"));
  EXPECT_TRUE(first.stop_reason == "end_turn" || first.stop_reason == "max_tokens");
  ASSERT_EQ(first.content.size(), 1u);
  messages.push_back({{"role", "assistant"}, {"content", first.content}});
  messages.push_back({{"role", "user"}, {"content", "Go on."}});
  messages.push_back({{"role", "assistant"},
                      {"content", Json::array({{{"type", "tool_use"},
                                                {"id", "toolu_1"},
                                                {"name", "Bash"},
                                                {"input", Json::object({{"command", "ls"}})}}})}});
  messages.push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"},
                                 {"tool_use_id", "toolu_1"},
                                 {"content", Json::array({text_block("a.c\nb.c")})},
                                 {"is_error", false},
                                 {"cache_control", Json::object({{"type", "ephemeral"}})}}})}});
  const ClaudeTurn second = claude(claude_request(messages, "0b3c1"));
  EXPECT_EQ(second.content.size(), 1u);
  // The hash in the header changes with each request, but the text after it is still cached.
  EXPECT_GT(second.cached, 20);
}

TEST(ClaudeCodeSession, CountsTokensWithoutTheHeaderOfItsBill) {
  Json request = claude_request(
      Json::array({{{"role", "user"}, {"content", "Which files are here?"}}}), "fa690");
  for (const char* name : {"max_tokens", "stream", "metadata"}) request.erase(name);
  const auto count = [&] {
    return agents_model()
        .served()
        .post("/v1/messages/count_tokens?beta=true", request)
        .json["input_tokens"]
        .get<std::int64_t>();
  };
  const std::int64_t with_header = count();
  request["system"] = Json::array({text_block("You are a coding assistant.")});
  EXPECT_EQ(count(), with_header);
  EXPECT_GT(with_header, 20);
}

}  // namespace
}  // namespace leq::test
