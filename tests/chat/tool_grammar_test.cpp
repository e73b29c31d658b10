// Replies that may call tools: which text is free, which is constrained, and from which position.
// Random replies of the grammar are parsed by ReplyReader and checked by plain code; replies built
// by plain code are read by the grammar.
#include "chat/tool_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/random.h"
#include "errors.h"
#include "grammar/automaton.h"
#include "grammar/watch.h"

namespace leq {
namespace {

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
    "properties": {"town": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["town", "days"],
    "additionalProperties": false}}},
  {"type": "function", "function": {"name": "weather_map", "parameters": {"type": "object",
    "properties": {"tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["tags"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "now"}}])";

constexpr std::array kStyles = {ToolCallStyle::hermes,   ToolCallStyle::xml,
                                ToolCallStyle::llama3,   ToolCallStyle::mistral,
                                ToolCallStyle::deepseek, ToolCallStyle::gemma};

struct Watched {
  ReplyStyle style;
  CallCount count = CallCount::any;
  std::string prompt = {};
  std::string tools = std::string(kTools);
};

class Automaton {
 public:
  explicit Automaton(const Watched& watched) : tree_(parse_json(watched.tools, "tools")) {
    automaton_.emplace(tool_grammar(watched.style,
                                    {.tools = tree_, .source = "tools", .count = watched.count},
                                    watched.prompt));
  }
  // Returns the state after the text, or kDead if the text is not allowed.
  GrammarAutomaton::State after(std::string_view text) {
    return automaton_->after(automaton_->start(), text);
  }
  bool reads(std::string_view text) { return after(text) != GrammarAutomaton::kDead; }
  bool accepts(std::string_view text) { return reads(text) && automaton_->may_end(after(text)); }
  bool must_end(std::string_view text) {
    return accepts(text) && !automaton_->can_read(after(text));
  }
  GrammarAutomaton& operator*() { return *automaton_; }
  JsonNode tools() const { return tree_; }

 private:
  Json tree_;
  std::optional<GrammarAutomaton> automaton_;
};

struct Told {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
};

Told read(const Watched& watched, JsonNode tools, const std::string& text) {
  ReplyReader reader(watched.style, watched.prompt, true, tools);
  Told told;
  const auto add = [&](const ReplyPiece& piece) {
    told.reasoning += piece.reasoning;
    told.content += piece.content;
    for (const ToolCallPiece& call : piece.calls) {
      told.calls.resize(std::max(told.calls.size(), call.index + 1));
      told.calls[call.index].first += call.name;
      told.calls[call.index].second += call.arguments;
    }
  };
  add(reader.push(text));
  add(reader.finish());
  return told;
}

// Checks the arguments as the schemas above do, but with separate code.
bool is_valid(const std::string& name, const Json& arguments) {
  if (!arguments.is_object()) return false;
  if (name == "now") return arguments.empty();
  if (name == "weather_map") {
    if (arguments.size() != 1 || !arguments["tags"].is_array()) return false;
    for (const Json& tag : arguments["tags"]) {
      if (!tag.is_boolean()) return false;
    }
    return arguments["tags"].size() <= 3;
  }
  if (name != "weather" || !arguments.contains("town") || !arguments["town"].is_string())
    return false;
  const bool has_unit = arguments.contains("unit");
  if (has_unit && arguments["unit"] != "C" && arguments["unit"] != "F") return false;
  if (arguments.size() != (has_unit ? 3u : 2u) || !arguments["days"].is_number_integer())
    return false;
  const int days = arguments["days"].get<int>();
  return days >= 1 && days <= 9;
}

struct Case {
  ToolCallStyle style;
  std::string text;  // may be written
  std::string then;  // its first byte must not follow; empty: none
};

const std::vector<Case>& cases() {
  using enum ToolCallStyle;
  static const std::vector<Case> kCases = {
      {hermes,
       "2 < 3 <tool_cal <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": "
       "\"Gr\\u00e4z\", \"days\": 3}}\n</tool_call>",
       ""},
      {hermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> and <tool_call>\n{\"name\": "
       "\"weather_map\", \"arguments\": {\"tags\": [true]}}\n</tool_call>\n",
       ""},
      {hermes, "<tool_call>", "I"},
      {hermes, "<tool_call>\n{\"name\": \"weather", "s"},
      {hermes, "<tool_call>\n{\"name\": \"weather_map\", \"arguments\": {\"", "days"},
      {hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": ", "7"},
      {hermes, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"x\"", "}"},
      {hermes,
       "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"x\", \"days\": ", "0"},
      {hermes, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}", "."},
      {hermes, "<<tool_call>", "x"},
      {hermes, "<tool_<tool_call>", "x"},
      {xml,
       "So:\n<tool_call>\n<function=weather>\n<parameter=town>\nSt. "
       "<b>\nP\n</parameter>\n<parameter=days>\n4\n</parameter>\n</function>\n</tool_call>",
       ""},
      {xml, "<function=weather_map>\n<parameter=tags>\n[true, false]\n</parameter>\n</function> so",
       ""},
      {xml, "<tool_call>\n<function=now>\n</function>\n</tool_call>", ""},
      {xml, "<function=weather>\n<parameter=town>\nx\n</parameter>\n<parameter=days>\n", "a"},
      {xml, "<function=weather>\n<parameter=town>\nx\n</parameter>\n<", "/"},
      {xml, "<function=we", "b"},
      {xml, "<tool_call>\n", "{"},
      {llama3, " {\"name\": \"weather\", \"parameters\": {\"town\": \"x\", \"days\": 1}}", ""},
      {llama3,
       "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", "
       "\"parameters\": {}}",
       ""},
      {llama3, "{\"name\": \"Ada\", \"years\": 36} is no call, nor is {\"name\": \"now\"}", ""},
      {llama3, "{\"answer\": 42}", ""},
      {llama3, "<|python_tag|>print(1)", ""},
      {llama3, "{\"name\": \"now\"", "}"},
      {llama3, "{\"name\": \"weather\", \"parameters\": {\"town\": ", "n"},
      {llama3, "<|python_tag|>{\"name\": \"now\", \"parameters\": {", "\""},
      {llama3, "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\"", "}"},
      {mistral,
       "Well.[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"weather_map\", "
       "\"arguments\": {\"tags\": []}, \"id\": \"abcdefghi\"}]",
       ""},
      {mistral,
       "[TOOL_CALLS]weather[ARGS]{\"town\": \"x\", \"days\": 1, \"unit\": "
       "\"F\"}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
       ""},
      {mistral, "[TOOL_CALLS]weather[ARGS]{\"town\": \"x\", \"days\": 1, \"unit\": \"", "K"},
      {mistral, "[TOOL_CALLS]wea", "l"},
      {mistral, "[TOOL_CALLS]", "."},
      {deepseek,
       "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<"
       "｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>weather_map<｜tool▁sep｜>{\"tags\": "
       "[false]}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       ""},
      {deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{",
       "1"},
      {deepseek, "<｜tool▁calls▁begin｜>", "x"},
      {gemma,
       "So.<|tool_call>call:weather{days:3,town:<|\"|>Gr\"äz}<|\"|>,unit:<|\"|>C<|\"|>}<tool_call|>"
       "<|tool_call>call:now{}<tool_call|> and "
       "<|tool_call>call:weather_map{tags:[true]}<tool_call|>",
       ""},
      {gemma, "<|tool_call>", "{"},
      {gemma, "<|tool_call>call:weather", "s"},
      {gemma, "<|tool_call>call:weather_map{", "d"},
      {gemma, "<|tool_call>call:weather{town:", "7"},
      {gemma, "<|tool_call>call:weather{town:<|\"|>x<|\"|>", "}"},
      {gemma, "<|tool_call>call:weather{town:<|\"|>x<|\"|>,days:", "0"},
      {gemma, "<|tool_call>call:weather{town:<|\"|>x<|\"|>,unit:<|\"|>", "K"},
      {gemma, "<|tool_call>call:now{}", "."},
  };
  return kCases;
}

TEST(ToolGrammar, RecordedRepliesAreReadToWhereTheyLeaveTheSchema) {
  for (const Case& one : cases()) {
    Automaton automaton({.style = {one.style}});
    EXPECT_TRUE(automaton.reads(one.text)) << one.text;
    if (one.then.empty()) {
      EXPECT_TRUE(automaton.accepts(one.text)) << one.text;
      const Watched watched = {.style = {one.style}};
      for (const auto& [name, arguments] : read(watched, automaton.tools(), one.text).calls) {
        if (name == "python") continue;
        EXPECT_TRUE(is_valid(name, parse_json(arguments, "call"))) << one.text;
      }
    } else {
      EXPECT_FALSE(automaton.reads(one.text + one.then[0])) << one.text << " | " << one.then;
      EXPECT_FALSE(automaton.accepts(one.text)) << one.text;
    }
  }
}

TEST(ToolGrammar, AnythingIsFreeWithoutAMark) {
  Random random(1);
  for (const ToolCallStyle style : kStyles) {
    Automaton automaton({.style = {style}});
    const auto free = automaton.after("x");
    for (int turn = 0; turn < 200; ++turn) {
      std::string text = "x";
      for (int i = 0; i < 40; ++i) text += static_cast<char>(random.bits() % 256);
      text += ' ';
      EXPECT_EQ(automaton.after(text), free);
    }
    EXPECT_FALSE(automaton.must_end("x"));
    EXPECT_TRUE(automaton.accepts(""));
  }
  const Json tools = parse_json(kTools, "tools");
  EXPECT_EQ(tool_grammar({}, {.tools = tools, .source = "tools"}, ""), nullptr);
}

// Marks that overlap themselves and each other; compared with a plain search for each mark.
TEST(ToolGrammar, AMarkIsFoundWhereverItStands) {
  const std::vector<std::string> marks = {"aabab", "babb", "abba"};
  WatchMode free;
  for (const std::string& mark : marks) free.anywhere.push_back({mark, {}, 1});
  GrammarBuilder builder("g");
  const std::int32_t root = builder.rule("root");
  builder.define(root, watched_text(builder, {free, {.closed = true}}, 0, WatchEnd::anywhere));
  GrammarAutomaton automaton(builder.finish(root));
  Random random(3);
  for (int turn = 0; turn < 3000; ++turn) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + random.bits() % 2);
    std::size_t end = std::string::npos;  // end of the first mark
    for (const std::string& mark : marks) {
      const std::size_t at = text.find(mark);
      if (at != std::string::npos) end = std::min(end, at + mark.size());
    }
    for (std::size_t length = 0; length <= text.size(); ++length) {
      const auto state = automaton.after(automaton.start(), text.substr(0, length));
      ASSERT_EQ(state == GrammarAutomaton::kDead, length > end) << text << ' ' << length;
      ASSERT_EQ(length == end, length <= end && !automaton.can_read(state)) << text;
    }
  }
}

TEST(ToolGrammar, ReasoningHoldsNoCalls) {
  for (const bool begun : {false, true}) {
    const Watched watched = {.style = {ToolCallStyle::hermes, "<think>", "</think>"},
                             .prompt = begun ? "<think>\n" : "assistant\n"};
    Automaton automaton(watched);
    const std::string reasoning = std::string(begun ? "" : "\n<think>") + "<tool_call> hm </think>";
    EXPECT_TRUE(automaton.accepts(reasoning));
    EXPECT_FALSE(automaton.reads(reasoning + "<tool_call>h"));
    EXPECT_TRUE(automaton.reads(reasoning + "<think><tool_call>{"));
    EXPECT_FALSE(automaton.reads(reasoning + "<think><tool_call>h"));  // only allowed once
    EXPECT_EQ(automaton.reads("<tool_call>h"), begun);
    EXPECT_EQ(automaton.reads("a <think> <tool_call>h"), begun);  // also allowed at the start
  }
}

TEST(ToolGrammar, OneCallEndsAReply) {
  const std::array<std::string, 6> calls = {
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
      "<tool_call><function=now></function></tool_call>",
      "{\"name\": \"now\", \"parameters\": {}}",
      "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><"
      "｜tool▁calls▁end｜>",
      "<|tool_call>call:now{}<tool_call|>"};
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    Automaton one({.style = {kStyles[i]}, .count = CallCount::one});
    EXPECT_TRUE(one.must_end(calls[i])) << calls[i];
    EXPECT_TRUE(one.accepts("no call"));
    Automaton any({.style = {kStyles[i]}});
    EXPECT_TRUE(any.accepts(calls[i] + " more"));
    EXPECT_FALSE(any.must_end(calls[i]));
  }
}

TEST(ToolGrammar, ASchemaThatCannotBeHeldIsAnyObjectUnlessItIsStrict) {
  const auto tools = [](const char* strict) {
    return std::string(
               R"([{"function": {"name": "f", "parameters": {"type": "object", "not": {}})") +
           strict + "}}]";
  };
  Automaton loose({.style = {ToolCallStyle::hermes}, .tools = tools("")});
  EXPECT_TRUE(
      loose.accepts("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}</tool_call>"));
  EXPECT_FALSE(loose.reads("<tool_call>{\"name\": \"f\", \"arguments\": 1"));
  test::expect_error(
      [&] {
        Automaton strict({.style = {ToolCallStyle::hermes}, .tools = tools(R"(, "strict": true)")});
      },
      {"tools: f: #: the keyword 'not'"});
}

// Chooses random allowed bytes, and occasionally bytes that end something.
std::string random_reply(Automaton& automaton, const std::string& mark, Random& random) {
  constexpr auto kDead = GrammarAutomaton::kDead;
  std::string text = mark;
  auto state = automaton.after(mark);
  for (int i = 0; i < 600 && !(*automaton).may_end(state); ++i) {
    std::vector<std::string> ways;
    if (random.bits() % 3 == 0) {
      for (const char* end : {"</parameter>", "<|\"|>", "\"", "}", "]"}) ways.emplace_back(end);
    } else {
      for (int byte = 0; byte < 256; ++byte) ways.emplace_back(1, static_cast<char>(byte));
    }
    std::erase_if(ways, [&](const auto& way) { return (*automaton).after(state, way) == kDead; });
    if (ways.empty()) continue;
    const std::string& way = ways[random.bits() % ways.size()];
    state = (*automaton).after(state, way);
    text += way;
  }
  return text;
}

TEST(ToolGrammar, WhateverItAllowsIsAValidCall) {
  const std::array<std::string, 6> marks = {"<tool_call>",
                                            "<tool_call>",
                                            "{\"name\": \"weather\"",
                                            "[TOOL_CALLS]",
                                            "<｜tool▁calls▁begin｜>",
                                            "<|tool_call>"};
  Random random(7);
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    const Watched watched = {.style = {kStyles[i]}, .count = CallCount::one};
    Automaton automaton(watched);
    int whole = 0;
    for (int turn = 0; turn < 40; ++turn) {
      const std::string text = random_reply(automaton, marks[i], random);
      if (!automaton.accepts(text)) continue;
      ++whole;
      const Told told = read(watched, automaton.tools(), text);
      ASSERT_EQ(told.calls.size(), 1u) << text;
      EXPECT_EQ(told.content, "") << text;
      EXPECT_TRUE(is_valid(told.calls[0].first, parse_json(told.calls[0].second, "call"))) << text;
    }
    EXPECT_GT(whole, 20);
  }
}

// A value as Gemma writes it.
std::string in_gemma(const Json& value) {
  if (value.is_string()) return "<|\"|>" + value.text() + "<|\"|>";
  if (!value.is_object() && !value.is_array()) return value.dump();
  std::string inside;
  if (value.is_array()) {
    for (const Json& one : value) inside += (inside.empty() ? "" : ",") + in_gemma(one);
    return "[" + inside + "]";
  }
  for (const auto& [key, one] : value.items()) {
    inside += (inside.empty() ? "" : ",") + key + ":" + in_gemma(one);
  }
  return "{" + inside + "}";
}

// 720 replies with arguments in any order, undeclared ones among them, written by plain code: each
// is allowed in its style, and read back without one lost or invented.
TEST(ToolGrammar, ArgumentsInAnyOrderAndUndeclaredOnesAreKept) {
  constexpr std::string_view kOpen =
      R"([{"function": {"name": "edit", "parameters": {"type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer"},
    "flags": {"type": "array", "items": {"type": "string"}}, "all": {"type": "boolean"},
    "how": {"enum": ["fast", "slow"]}, "at": {"type": "object", "properties":
    {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["y"]}},
    "required": ["line", "path"]}}}])";
  const std::vector<std::pair<std::string, std::vector<std::string>>> values = {
      {"path", {R"("a\"b\n\u00e9")", R"("true")", R"("7")", R"("")"}},
      {"line", {"7", "-12"}},
      {"flags", {R"([])", R"(["x", "y z"])"}},
      {"all", {"true", "false"}},
      {"how", {R"("slow")"}},
      {"at", {R"({"y": 1.5})", R"({"z": null, "y": 2, "x": 3})"}},
      {"pathology", {R"("near")", R"({"k": [1]})"}},
      {"tall", {R"("x < y")"}}};
  Random random(11);
  for (const ToolCallStyle style : kStyles) {
    const Watched watched = {.style = {style}, .tools = std::string(kOpen)};
    Automaton automaton(watched);
    for (int turn = 0; turn < 120; ++turn) {
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i < 2 || random.bits() % 2 == 0) order.push_back(i);
      }
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random.bits() % i]);
      }
      std::string json = "{", xml;
      for (const std::size_t i : order) {
        const auto& [name, ways] = values[i];
        const std::string& value = ways[random.bits() % ways.size()];
        json += (json.size() > 1 ? ", \"" : "\"") + name + "\": " + value;
        const Json parsed = parse_json(value, "value");
        xml += "<parameter=" + name + ">\n" + (parsed.is_string() ? parsed.text() : value) +
               "\n</parameter>\n";
      }
      json += "}";
      const std::string text =
          style == ToolCallStyle::hermes
              ? "<tool_call>\n{\"name\": \"edit\", \"arguments\": " + json + "}\n</tool_call>"
          : style == ToolCallStyle::xml
              ? "<tool_call>\n<function=edit>\n" + xml + "</function>\n</tool_call>"
          : style == ToolCallStyle::llama3  ? "{\"name\": \"edit\", \"parameters\": " + json + "}"
          : style == ToolCallStyle::mistral ? "[TOOL_CALLS]edit[ARGS]" + json
          : style == ToolCallStyle::gemma
              ? "<|tool_call>call:edit" + in_gemma(parse_json(json, "json")) + "<tool_call|>"
              : "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>" + json +
                    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
      ASSERT_TRUE(automaton.accepts(text)) << text;
      const Told told = read(watched, automaton.tools(), text);
      ASSERT_EQ(told.calls.size(), 1u) << text;
      EXPECT_EQ(parse_json(told.calls[0].second, "call"), parse_json(json, "json")) << text;
    }
    // A required argument is not left out, none is written twice.
    if (style != ToolCallStyle::mistral) continue;
    EXPECT_FALSE(automaton.reads("[TOOL_CALLS]edit[ARGS]{\"path\": \"x\", \"all\": true}"));
    EXPECT_FALSE(automaton.reads("[TOOL_CALLS]edit[ARGS]{\"path\": \"x\", \"path\": "));
    EXPECT_TRUE(automaton.reads("[TOOL_CALLS]edit[ARGS]{\"line\": 1, \"paths\": 2, \"pa"));
  }
}

TEST(ToolGrammar, EveryValidCallIsAllowed) {
  Random random(9);
  Automaton automaton({.style = {ToolCallStyle::hermes}});
  const std::array<std::string, 4> towns = {"Wien", "S\u00e3o \\\"Paulo\\\"", "", "</tool_call>"};
  for (int turn = 0; turn < 200; ++turn) {
    const std::string space = random.bits() % 2 == 0 ? " " : "";
    std::string arguments = "{\"town\":" + space + "\"" + towns[random.bits() % towns.size()] +
                            "\"," + space + "\"days\":" + space +
                            std::to_string(1 + random.bits() % 9);
    if (random.bits() % 2 == 0) arguments += ",\n  \"unit\": \"C\"";
    arguments += "}";
    const std::string text = "Yes.<tool_call>\n{\"name\":" + space + "\"weather\"," + space +
                             "\"arguments\": " + arguments + "}\n</tool_call>";
    EXPECT_TRUE(automaton.accepts(text)) << text;
  }
}

}  // namespace
}  // namespace leq
