// Conversations as agents send them, shown by the templates of models. The expected texts are what
// Jinja2 makes of conversations that the template takes (adapted/oracle.py).
#include "chat/adapt.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/file.h"
#include "processor_time.h"
#include "shared_data.h"

namespace leq {
namespace {

ChatOptions options() {
  ChatOptions options = {.bos = "<s>", .eos = "</s>"};
  std::tm now = {};  // as in jinja/oracle.py
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 5;
  now.tm_hour = 14;
  now.tm_wday = 3;
  options.now = now;
  return options;
}

struct Shown {
  std::string text;
  AdaptedChat adapted;
};

Shown shown(const std::string& jinja, JsonNode sent) {
  const ChatTemplate chat = ChatTemplate::of_model(jinja, "template");
  ToolCallStyle style = reply_style(jinja).tools;
  TemplateTakes takes = takes_of(chat, options(), style);
  takes.developer = takes.developer && jinja.find("developer") != std::string::npos;
  if (style == ToolCallStyle::none) style = ToolCallStyle::hermes;
  ChatRequest request = {.messages = sent.find("messages"), .tools = sent.find("tools")};
  Shown shown = {.text = {}, .adapted = adapt_chat(request.messages, request.tools, takes, style)};
  if (shown.adapted.messages) request.messages = *shown.adapted.messages;
  if (shown.adapted.tools) request.tools = *shown.adapted.tools;
  shown.text = joined(chat.render(request, options()));
  return shown;
}

TEST(AdaptedChat, IsWhatJinjaMakesOfOneThatTheTemplateTakes) {
  LEQ_SHARED_OR_SKIP(folder, "data/chat/templates");
  const Json cases = parse_json(
      read_file(std::string(LEQ_SOURCE_DIR) + "/tests/chat/adapted/cases.json", 1 << 20), "cases");
  for (const Json& one : cases) {
    const std::string name = one["name"].text() + ", " + one["template"].text();
    const Shown found = shown(read_file(folder / one["template"].text(), 1 << 20), one["sent"]);
    EXPECT_EQ(found.text, one["text"].text()) << name;
  }
}

// Clients send back what a model wrote, and "" for a call without arguments.
TEST(AdaptedChat, ArgumentsThatAreNoObjectRefuseNoConversation) {
  LEQ_SHARED_OR_SKIP(folder, "data/chat/templates");
  const char* templates[] = {"Qwen3-Coder", "Qwen3.5-4B", "Qwen-Qwen3-0.6B",
                             "meta-llama-Llama-3.1-8B-Instruct",
                             "meta-llama-Llama-3.3-70B-Instruct"};
  const std::pair<Json, std::string> cases[] = {{"", ""},
                                                {" ", ""},
                                                {nullptr, ""},
                                                {"[7]", ""},
                                                {"{\"x\":", ""},
                                                {R"({"x":7,"y":"\ud83d"})", "7"},
                                                {R"({"x":6,"x":7})", "7"}};
  for (const char* name : templates) {
    const std::string jinja = read_file(folder / (std::string(name) + ".jinja"), 1 << 20);
    for (const auto& [arguments, read] : cases) {
      Json sent = parse_json(
          R"({"messages":[{"role":"user","content":"?"},{"role":"assistant","content":null,
              "tool_calls":[{"id":"1","type":"function","function":{"name":"f"}}]},
              {"role":"tool","tool_call_id":"1","content":"!"},
              {"role":"user","content":"go on"}]})",
          "sent");
      sent["messages"][1]["tool_calls"][0]["function"]["arguments"] = arguments;
      const std::string text = shown(jinja, sent).text;
      EXPECT_NE(text.find("go on"), std::string::npos) << name << arguments.dump();
      EXPECT_NE(text.find(read), std::string::npos) << text;
    }
  }
}

TEST(AdaptedChat, IsTheClientsOwnWhereTheTemplateTakesIt) {
  const std::string any =
      "{% for m in messages %}{{ m.role ~ m.content ~ (m.tool_calls | default([]) | tojson) }}"
      "{% endfor %}{{ tools | tojson }}{# <tool_call> developer #}";
  const Json sent = parse_json(R"({"messages": [{"role": "developer", "content": "a"},
      {"role": "user", "content": "b"}, {"role": "system", "content": "c"}]})",
                               "sent");
  const Shown found = shown(any, sent);
  EXPECT_FALSE(found.adapted.messages);
  EXPECT_FALSE(found.adapted.tools);
  EXPECT_TRUE(found.adapted.notes.empty());
}

// Clients send back "tool_calls": null or [] with a reply that called nothing.
TEST(AdaptedChat, NoCallsAreNoMember) {
  const std::string strict =
      "{% for m in messages %}{% if m.tool_calls is defined %}{{ raise_exception('calls') }}"
      "{% endif %}{{ m.content }}{% endfor %}";
  for (const char* calls : {"null", "[]"}) {
    const Json sent = parse_json(R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": )" +
                                     std::string(calls) + "}]}",
                                 "sent");
    EXPECT_EQ(shown(strict, sent).text, "ab") << calls;
  }
}

// As Gemma 4's template takes results.
TEST(AdaptedChat, ResultsAreMembersOfTheirCallsWhereTheTemplateShowsThemThere) {
  const std::string any =
      "{% for m in messages %}{{ m.role ~ ':' ~ m.content }}{% for c in m.tool_calls or [] %}"
      "({{ c.function.name ~ (c.function.arguments | tojson) }}){% endfor %}"
      "{% for r in m.tool_responses or [] %}[{{ r.name ~ (r.response | tojson) }}]{% endfor %};"
      "{% endfor %}"
      "{{ tools | tojson }}{# <|tool_call> <|\"|> #}";
  const Json sent = parse_json(R"({"messages": [{"role": "user", "content": "b"},
      {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "p"}}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": {"a": "q"}}}]},
      {"role": "tool", "tool_call_id": "2", "content": "{\"x\": \"deep\"}"},
      {"role": "tool", "tool_call_id": "1", "content": "plain"},
      {"role": "user", "content": "c"}], "tools": []})",
                               "sent");
  EXPECT_EQ(shown(any, sent).text,
            R"(user:b;assistant:(f{"a": "p"})(g{"a": "q"})[g{"x": "deep"}][f"plain"];user:c;[])");
}

// A list of `count` messages of this text; "#" in it is the number of the message.
Json messages_of(std::size_t count, const std::string& text) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    std::string one = text;
    for (std::size_t at = 0; (at = one.find('#', at)) != std::string::npos;) {
      one.replace(at, 1, std::to_string(i));
    }
    list += (i > 0 ? "," : "") + one;
  }
  return parse_json("[" + list + "]", "messages");
}

constexpr std::size_t kMany = 20'000;

// One message of all is no more work than many messages of two.
TEST(AdaptedChat, JoinsManyMessagesInTheTimeOfFew) {
  const std::string user = R"({"role":"user","content":")" + std::string(100, 'a') + "\"}";
  const Json one = messages_of(kMany, user),
             pairs = messages_of(kMany / 3, user + "," + user + R"(,{"role":"assistant"})");
  TemplateTakes takes;
  takes.repeats = false;
  const auto adapted = [&](const Json& messages) {
    return *adapt_chat(messages, {}, takes, ToolCallStyle::hermes).messages;
  };
  EXPECT_EQ(adapted(one)[0]["content"].text().size(), kMany * 102 - 2);
  const double few = test::processor_seconds([&] { (void)adapted(pairs); }),
               all = test::processor_seconds([&] { (void)adapted(one); });
  EXPECT_LT(all, 20 * few);
}

// Results of one message with all calls are no more work than those of many messages with one.
TEST(AdaptedChat, FindsTheCallsOfManyResultsInTheTimeOfFew) {
  const std::string call = R"({"id":"#","function":{"name":"f#"}})";
  const std::string result = R"({"role":"tool","tool_call_id":"#","content":"{}"})";
  const Json pairs =
      messages_of(kMany, R"({"role":"assistant","tool_calls":[)" + call + "]}," + result);
  Json one = messages_of(kMany + 1, result);
  one[0] = {{"role", "assistant"}, {"tool_calls", messages_of(kMany + 1, call)}};
  TemplateTakes takes;
  takes.responses = true;
  const auto adapted = [&](const Json& messages) {
    return *adapt_chat(messages, {}, takes, ToolCallStyle::hermes).messages;
  };
  EXPECT_EQ(adapted(one)[0]["tool_responses"][kMany - 1]["name"].text(),
            "f" + std::to_string(kMany));
  const double few = test::processor_seconds([&] { (void)adapted(pairs); }),
               all = test::processor_seconds([&] { (void)adapted(one); });
  EXPECT_LT(all, 20 * few);
}

// As the Responses API sends calls that a server has run, and their results.
TEST(AdaptedChat, APartIsDescribedWithItsActionAndItsOutput) {
  const Json parts = parse_json(
      R"([{"type": "local_shell_call", "action": {"command": ["ls"]}},
          {"type": "local_shell_call_output", "output": "a.txt"},
          {"type": "shell_call_output", "output": [{"stdout": "b.txt", "stderr": ""}]},
          {"type": "file_search_call", "results": [{"text": "c"}]}])",
      "parts");
  std::vector<std::string> unread;
  EXPECT_EQ(content_text(parts, "\n", unread),
            "[local_shell_call: {\"command\":[\"ls\"]}]\n[local_shell_call_output]\na.txt\n"
            "[shell_call_output]\n[part: b.txt]\n[file_search_call]\nc");
  EXPECT_TRUE(unread.empty());
}

TEST(AdaptedChat, NamesAPartWithoutTextThatIsNotAnsweredYet) {
  const std::string image = R"({"type": "image_url", "image_url": {"url": "data:x"}})";
  const auto sent = [&](const std::string& rest) {
    return parse_json(R"({"messages": [{"role": "user", "content": [)" + image + "]}" + rest + "]}",
                      "sent");
  };
  const std::string any = "{% for m in messages %}{{ m.role ~ m.content }}{% endfor %}";
  const Json last = sent("");
  EXPECT_EQ(shown(any, last).adapted.unread, "image_url");
  const Json answered =
      sent(R"(,{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"})");
  const Shown later = shown(any, answered);
  EXPECT_EQ(later.adapted.unread, "");
  EXPECT_EQ(later.text, "user[image_url: this model reads texts only]assistantxusery");
  ASSERT_EQ(later.adapted.notes.size(), 1u);
  EXPECT_NE(later.adapted.notes[0].find("image_url"), std::string::npos);
}

}  // namespace
}  // namespace leq
