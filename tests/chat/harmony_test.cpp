// gpt-oss's replies: parsed as openai-harmony parses them (harmony_replies.json), however they are
// split; and cut, malformed and continued ones.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "chat/reply.h"
#include "chat/tool_calls.h"
#include "chat/tool_grammar.h"
#include "grammar/automaton.h"
#include "shared_data.h"

// A named namespace: the folder is compiled as one file.
namespace leq::harmony {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;
struct Whole {
  std::string reasoning, content;
  Calls calls;
  bool operator==(const Whole&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Whole& whole) {
  out << "reasoning [" << whole.reasoning << "] content [" << whole.content << "]";
  for (const auto& [name, arguments] : whole.calls) out << " call " << name << "(" << arguments;
  return out;
}

constexpr std::string_view kPrompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";

ReplyStyle style() { return reply_style("<|start|><|channel|>analysis<|message|>"); }

Whole read(const std::vector<std::string>& pieces, std::string_view prompt = kPrompt,
           bool with_tools = true) {
  ReplyReader reader(style(), prompt, with_tools);
  Whole whole;
  const auto add = [&](const ReplyPiece& piece) {
    whole.reasoning += piece.reasoning;
    whole.content += piece.content;
    for (const ToolCallPiece& part : piece.calls) {
      if (part.index == whole.calls.size()) whole.calls.emplace_back(part.name, "");
      whole.calls.at(part.index).second += part.arguments;
    }
  };
  for (const std::string& piece : pieces) add(reader.push(piece));
  add(reader.finish());
  EXPECT_EQ(reader.calls(), whole.calls.size());
  return whole;
}

std::string lines(JsonNode texts) {
  std::string all;
  for (const JsonNode text : texts) all += (all.empty() ? "" : "\n") + text.text();
  return all;
}

std::vector<std::pair<std::string, Whole>> recorded() {
  const auto file = std::filesystem::path(LEQ_SOURCE_DIR) / "tests/chat/harmony_replies.json";
  const Json replies = parse_json(read_file(file, 1 << 20), "replies");
  std::vector<std::pair<std::string, Whole>> all;
  for (const JsonNode one : JsonNode(replies)) {
    Whole whole = {lines(one.find("reasoning")), lines(one.find("content")), {}};
    for (const JsonNode call : one.find("calls")) {
      whole.calls.emplace_back(call[0].text(), call[1].text());
    }
    all.emplace_back(one.find("text").text(), std::move(whole));
  }
  return all;
}

TEST(Harmony, RepliesAreParsedAsOpenAiHarmonyParsesThem) {
  const auto all = recorded();
  ASSERT_GE(all.size(), 100u);
  for (const auto& [text, whole] : all) {
    EXPECT_EQ(read({text}), whole) << text;
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(read(bytes), whole) << text;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      ASSERT_EQ(read({text.substr(0, i), text.substr(i)}), whole)
          << text.substr(0, i) << "  |  " << text.substr(i);
    }
  }
}

// A truncated reply has the beginnings of the whole one's reasoning and arguments, and no others.
TEST(Harmony, ATruncatedReplyInventsNothing) {
  for (const auto& [text, whole] : recorded()) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      // A mark is one token, which is not cut.
      const std::size_t mark = i == 0 ? std::string::npos : text.rfind("<|", i - 1);
      if (mark != std::string::npos && text.find("|>", mark) + 2 > i) continue;
      const Whole found = read({text.substr(0, i)});
      EXPECT_TRUE(whole.reasoning.starts_with(found.reasoning)) << text.substr(0, i);
      ASSERT_LE(found.calls.size(), whole.calls.size()) << text.substr(0, i);
      if (found.calls.empty()) continue;
      EXPECT_EQ(found.calls[0].first, whole.calls[0].first) << text.substr(0, i);
      EXPECT_TRUE(whole.calls[0].second.starts_with(found.calls[0].second)) << text.substr(0, i);
    }
  }
}

TEST(Harmony, OtherReplies) {
  const std::string start = "<|end|><|start|>assistant";
  const std::vector<std::pair<std::string, Whole>> replies = {
      {"", {}},
      {"No header.", {"", "No header.", {}}},
      {" < to", {"", " < to", {}}},
      {"<|channel|>analysis<|message|>open", {"open", "", {}}},
      {"<|channel|>analysis<|message|>a" + start, {"a", "", {}}},
      {"<|channel|>final<|message|>a\n", {"", "a\n", {}}},
      {"<|channel|>final<|message|>a<|return|>", {"", "a", {}}},
      {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
       {"", "", {{"f", "{}"}}}},
      {"<|channel|>commentary to=functions.f<|message|><|call|>", {"", "", {{"f", "{}"}}}},
      {"<|channel|>commentary to=functions.f<|message|>{\"a\": \"<|end|>\"}",
       {"", "", {{"f", "{\"a\": \"<|end|>\"}"}}}},
      {" to=functions.f<|channel|>comm", {"", "", {{"f", ""}}}},
      {" to=functions.f", {}},
      {"<|channel|>analysis to=python code<|message|>print(\"1\")",
       {"", "", {{"python", "{\"code\": \"print(\\\"1\\\")\"}"}}}},
      {"<|channel|>commentary to=functions.f<|message|>{\"a\": 1}" + start +
           "<|channel|>commentary to=functions.g<|message|>{\"b\": 2}",
       {"", "", {{"f", "{\"a\": 1}"}, {"g", "{\"b\": 2}"}}}},
      // The mark of the first one's end is missing.
      {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b",
       {"a", "b", {}}}};
  for (const auto& [text, whole] : replies) {
    EXPECT_EQ(read({text}), whole) << text;
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(read(bytes), whole) << text;
  }
}

TEST(Harmony, WithoutToolsACallIsContent) {
  EXPECT_EQ(read({"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
                  "to=functions.f<|message|>{}"},
                 kPrompt, false),
            (Whole{"a", "{}", {}}));
}

TEST(Harmony, APromptMayHaveBegunTheMessage) {
  const std::string prompt(kPrompt);
  EXPECT_EQ(read({" more"}, prompt + "<|channel|>final<|message|>text"), (Whole{"", " more", {}}));
  EXPECT_EQ(read({"a<|end|>"}, prompt + "<|channel|>analysis<|message|>"), (Whole{"a", "", {}}));
  EXPECT_EQ(read({"<|message|>a"}, prompt + "<|channel|>final"), (Whole{"", "a", {}}));
}

TEST(Harmony, ArgumentsComeAsTheyAreWritten) {
  ReplyReader reader(style(), kPrompt, true);
  (void)reader.push("<|channel|>commentary to=functions.f<|message|>{\"a\": \"");
  for (const std::string piece : {"one ", "two ü", "<|"}) {
    const ReplyPiece found = reader.push(piece);
    ASSERT_EQ(found.calls.size(), 1u);
    EXPECT_EQ(found.calls[0].arguments, piece);
  }
}

// Whether the grammar allows the whole text.
bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarAutomaton automaton(grammar);
  const auto state = automaton.after(automaton.start(), text);
  return state != GrammarAutomaton::kDead && automaton.may_end(state);
}

TEST(Harmony, GrammarsOfCallsAndAnswers) {
  const Json tools = parse_json(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":)"
      R"({"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}])",
      "tools");
  const Json schema = parse_json(R"({"type":"integer"})", "schema");
  const CallRules rules = {.tools = tools, .source = "tools"};
  const AnswerSchema answer = {.schema = schema, .source = "schema"};
  const auto free = tool_grammar(style(), rules, kPrompt),
             forced = forced_call_grammar(style(), rules, kPrompt),
             either = call_or_answer_grammar(style(), rules, answer, kPrompt),
             only = answer_grammar(style(), answer, kPrompt);
  const std::string thought = "<|channel|>analysis<|message|>a to=functions.x b<|end|>",
                    role = "<|start|>assistant", final = "<|channel|>final<|message|>";
  const std::string before = thought + role;
  for (const std::string& start : {std::string(), before, before + before}) {
    for (const std::string head :
         {"<|channel|>commentary to=functions.f <|constrain|>json",
          "<|channel|>commentary to=functions.f", " to=functions.f<|channel|>commentary json"}) {
      const std::string call = start + head + "<|message|>{\"a\": ";
      for (const auto& grammar : {free, forced, either}) {
        EXPECT_TRUE(accepts(grammar, call + "1}")) << call;
        EXPECT_FALSE(accepts(grammar, call + "\"\"}")) << call;
      }
      EXPECT_FALSE(accepts(only, call + "1}")) << call;
    }
    EXPECT_FALSE(accepts(free, start + "<|channel|>commentary to=functions.g<|message|>{}"));
    EXPECT_TRUE(accepts(free, start + final + "Yes."));
    EXPECT_FALSE(accepts(forced, start + final + "1"));
    for (const auto& grammar : {either, only}) {
      EXPECT_TRUE(accepts(grammar, start + final + "12"));
      EXPECT_TRUE(accepts(grammar, start + "<|channel|>final <|constrain|>json<|message|>12"));
      EXPECT_FALSE(accepts(grammar, start + final + "no"));
    }
  }
}

TEST(Harmony, TheStyleIsReadOffTheTemplate) {
  LEQ_SHARED_OR_SKIP(folder, "data/chat/templates");
  const ReplyStyle found = reply_style(read_file(folder / "openai-gpt-oss-120b.jinja", 1 << 20));
  EXPECT_EQ(found.tools, ToolCallStyle::harmony);
  EXPECT_TRUE(found.channels);
}

}  // namespace
}  // namespace leq::harmony
