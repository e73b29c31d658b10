// Replies parsed into reasoning, content and calls, in each style, however the text is split.
#include "chat/tool_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/tokenizer_import.h"
#include "shared_data.h"

namespace leq {
namespace {

struct Call {
  std::string name, arguments;
  bool operator==(const Call&) const = default;
};

struct Whole {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool operator==(const Whole&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Whole& whole) {
  out << "reasoning [" << whole.reasoning << "] content [" << whole.content << "]";
  for (const Call& call : whole.calls) out << " call " << call.name << "(" << call.arguments << ")";
  return out;
}

void add(Whole& whole, const ReplyPiece& piece) {
  whole.reasoning += piece.reasoning;
  whole.content += piece.content;
  for (const ToolCallPiece& part : piece.calls) {
    if (part.index == whole.calls.size()) {
      EXPECT_FALSE(part.name.empty());
      whole.calls.push_back({part.name, ""});
    } else {
      EXPECT_EQ(part.index + 1, whole.calls.size());
      EXPECT_TRUE(part.name.empty());
    }
    whole.calls.back().arguments += part.arguments;
  }
}

struct Recorded {
  ToolCallStyle style;
  std::string text;
  Whole whole;
  std::string prompt = "";
  std::string tools = "[]";
};

ReplyStyle style_of(const Recorded& one) {
  ReplyStyle style;
  style.tools = one.style;
  style.think_begin = one.style == ToolCallStyle::mistral ? "[THINK]" : "<think>";
  style.think_end = one.style == ToolCallStyle::mistral ? "[/THINK]" : "</think>";
  if (one.style == ToolCallStyle::gemma) {
    style.think_begin = "<|channel>thought";
    style.think_end = "<channel|>";
  }
  return style;
}

Whole read(const Recorded& one, const std::vector<std::string>& pieces) {
  const Json tools = parse_json(one.tools, "tools");
  ReplyReader reader(style_of(one), one.prompt, true, tools);
  Whole whole;
  for (const std::string& piece : pieces) add(whole, reader.push(piece));
  add(whole, reader.finish());
  EXPECT_EQ(reader.calls(), whole.calls.size());
  return whole;
}

const std::vector<Recorded>& replies() {
  using enum ToolCallStyle;
  static const std::vector<Recorded> kReplies = {
      {none, "Plain text.\n", {"", "Plain text.\n", {}}},
      {none, "<think>\nHm.\n</think>\n\nYes. <tool_call>", {"Hm.", "Yes. <tool_call>", {}}},
      {hermes, " A <b> & 3 < 4 \n", {"", " A <b> & 3 < 4 \n", {}}},
      {hermes, "Hm.\n</think>\nYes.", {"Hm.", "Yes.", {}}, "<|im_start|>assistant\n<think>\n"},
      {hermes, "only reasoning", {"only reasoning", "", {}}, "<think>"},
      {hermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, {\"y\": "
       "\"}\\\"\"}]}}\n</tool_call>",
       {"", "", {{"f", "{\"x\": [1, {\"y\": \"}\\\"\"}]}"}}}},
      {hermes,
       "<think>\nI look.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}\n</tool_call>\n<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"g\"}</tool_call>\n",
       {"I look.", "One moment.", {{"f", "{}"}, {"g", "{\"a\": 1}"}}}},
      {hermes, "<tool_call>{\"name\": \"f\"}</tool_call> done", {"", "done", {{"f", "{}"}}}},
      {hermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 2}\"}</tool_call>",
       {"", "", {{"f", "{\"a\": 2}"}}}},
      {hermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 2}, \"id\": \"}\"}</tool_call>",
       {"", "", {{"f", "{\"a\": 2}"}}}},
      {hermes, "<tool_call>no call</tool_call>", {"", "<tool_call>no call</tool_call>", {}}},
      {hermes, "<tool_call>{\"name\": 3}", {"", "<tool_call>{\"name\": 3}", {}}},
      {hermes, "<tool_call>{\"name\": \"f\", \"argum", {"", "", {{"f", ""}}}},
      {hermes,
       "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
       {"", "", {{"f", "{\"a\": \"b"}}}},
      {hermes, "Yes.<tool_call>\n{\"name\": \"f", {"", "Yes.", {}}},
      {mistral, "[TOOL_CALLS]f[ARGS]", {"", "", {{"f", ""}}}},
      {xml, "<tool_call>\n<function=f", {"", "", {}}},
      // A call in thoughts that were not ended ends them; a mark that is only mentioned does not.
      {hermes,
       "Use <tool_call> here.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "1}}\n</tool_call>",
       {"Use <tool_call> here.", "", {{"f", "{\"a\": 1}"}}},
       "<think>\n"},
      {xml,
       "<think>\nHm.\n<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n"
       "</tool_call>",
       {"Hm.", "", {{"f", "{\"x\": 1}"}}}},
      {mistral, "Hm.[TOOL_CALLS]f[ARGS]{}", {"Hm.", "", {{"f", "{}"}}}, "[THINK]"},
      {hermes, "<tool_ca", {"", "<tool_ca", {}}},
      {xml,
       "<tool_call>\n<function=get_weather>\n<parameter=town>\nGraz\n</"
       "parameter>\n<parameter=days>\n[1, "
       "2]\n</parameter>\n<parameter=code>\n007\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"get_weather", "{\"town\": \"Graz\", \"days\": [1, 2], \"code\": \"007\"}"}}}},
      {xml,
       "I "
       "do.\n\n<tool_call>\n<function=f>\n<parameter=x>\n5\n</parameter>\n<parameter=y>\n5\n</"
       "parameter>\n<parameter=z>\na\nb < "
       "c\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</"
       "tool_call>",
       {"", "I do.", {{"f", "{\"x\": \"5\", \"y\": 5, \"z\": \"a\\nb < c\"}"}, {"g", "{}"}}},
       "",
       R"([{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "string"}, "y": {"type": "integer"}}}}}])"},
      {xml,  // equal keys would be no JSON
       "<function=f>\n<parameter=x>\n5\n</parameter>\n<parameter=y>\n5\n</parameter>\n"
       "<parameter=x>\n6\n</parameter>\n<parameter=y>\n6\n</parameter>\n</function>",
       {"", "", {{"f", "{\"x\": \"5\", \"y\": 5}"}}},
       "",
       R"([{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "string"}}}}}])"},
      {xml,
       "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
       {"", "", {{"f", "{\"a\": 1}"}}}},
      {xml, "a < b <function", {"", "a < b <function", {}}},
      {llama3, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", {"", "", {{"f", "{\"x\": 1}"}}}},
      {llama3,
       "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"a\": null}}",
       {"", "", {{"f", "{}"}, {"g", "{\"a\": null}"}}}},
      {llama3,
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": \"y\"}}",
       {"", "", {{"f", "{\"x\": \"y\"}"}}}},
      {llama3,
       "<|python_tag|>brave_search.call(query=\"who, where\", n=3)",
       {"", "", {{"brave_search", "{\"n\":3,\"query\":\"who, where\"}"}}}},
      {llama3,
       "<|python_tag|>print(1)\nx = 2",
       {"", "", {{"python", "{\"code\":\"print(1)\\nx = 2\"}"}}}},
      {llama3,
       "{\"answer\": {\"a\": 1}}\nThat is it.",
       {"", "{\"answer\": {\"a\": 1}}\nThat is it.", {}}},
      {llama3, "{\"name\": \"Ada\"}", {"", "{\"name\": \"Ada\"}", {}}},
      {llama3, "{broken", {"", "{broken", {}}},
      {llama3,
       "{\"name\": \"Ada\"}, with \"parameters\"",
       {"", "{\"name\": \"Ada\"}, with \"parameters\"", {}}},
      {llama3, "{broken <|python_tag|>f.call(x=1)", {"", "{broken", {{"f", "{\"x\":1}"}}}},
      {llama3,
       "Hello {\"name\": \"f\", \"parameters\": {}}",
       {"", "Hello {\"name\": \"f\", \"parameters\": {}}", {}}},
      {mistral,
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": [1]}, \"id\": \"abcdefghi\"}]",
       {"", "", {{"f", "{\"x\": [1]}"}}}},
      {mistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
       "{\"a\": 1}}]",
       {"", "", {{"f", "{}"}, {"g", "{\"a\": 1}"}}}},
      {mistral,
       "Well.[TOOL_CALLS]f[ARGS]{\"x\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}",
       {"", "Well.", {{"f", "{\"x\": 1}"}, {"g", "{}"}}}},
      {mistral, "[THINK]So.[/THINK]Yes [x]", {"So.", "Yes [x]", {}}},
      {mistral, "[TOOL_CALLS]not a call", {"", "[TOOL_CALLS]not a call", {}}},
      {deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": "
       "1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<"
       "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "", {{"f", "{\"x\": 1}"}, {"g", "{}"}}}},
      {deepseek,
       "I see.\n</think>\n\nLet me "
       "look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": "
       "\"｜\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"I see.", "Let me look.", {{"f", "{\"x\": \"｜\"}"}}},
       "<｜Assistant｜><think>\n"},
      {gemma,
       "<|channel>thought\nI look.\n<channel|>One moment.<|tool_call>call:f{town:<|\"|>S\"ão\n{x}"
       "<|\"|>,n:-3.5,flags:[true,<|\"|>a, b<|\"|>],at:{x:null,<|\"|>y z<|\"|>:[]}}<tool_call|>"
       "<|tool_call>call:g{}<tool_call|>",
       {"I look.",
        "One moment.",
        {{"f", R"({"town": "S\"ão\n{x}", "n": -3.5, "flags": [true, "a, b"], "at": {"x": null, )"
               R"("y z": []}})"},
         {"g", "{}"}}}},
      {gemma,
       "<|tool_call>call:ns.f-1 { a : \"x}\\\"\", b:None , c: True,d:later} <tool_call|> Done.",
       {"", "Done.", {{"ns.f-1", R"({"a": "x}\"", "b": null, "c": true, "d": "later"})"}}}},
      {gemma, "Yes <|tool_call>no call", {"", "Yes <|tool_call>no call", {}}},
      {gemma,
       "So.\n<channel|>Yes <|x",
       {"So.", "Yes <|x", {}},
       "<|turn>model\n<|channel>thought\n"},
      {gemma, "Hm.<|tool_call>call:f{}", {"Hm.", "", {{"f", "{}"}}}, "<|channel>thought\n"},
      {gemma, "<|tool_call>call:f{a:<|\"|>b <|\"|", {"", "", {{"f", "{\"a\": \"b <|\\\"|"}}}},
  };
  return kReplies;
}

TEST(ToolCalls, RecordedRepliesAreTakenApart) {
  for (const Recorded& one : replies()) {
    const Whole found = read(one, {one.text});
    EXPECT_EQ(found, one.whole) << one.text;
    for (const Call& call : found.calls) {
      const bool cut = one.text.ends_with("\"b") || one.text.ends_with("<|\"|");
      if (cut || call.arguments.empty()) continue;
      EXPECT_NO_THROW(parse_json(call.arguments, "arguments")) << call.arguments;
    }
  }
}

// A file that is written with a call appears piece by piece, in the xml style too.
TEST(ToolCalls, ArgumentsComeAsTheyAreWritten) {
  const Json tools = parse_json(
      R"([{"function": {"name": "write", "parameters": {"properties": {"text": {"type": "string"}}}}}])",
      "tools");
  const std::vector<std::pair<ToolCallStyle, std::string>> heads = {
      {ToolCallStyle::hermes, "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \""},
      {ToolCallStyle::xml, "<tool_call>\n<function=write>\n<parameter=text>\n"},
      {ToolCallStyle::llama3, "{\"name\": \"write\", \"parameters\": {\"text\": \""},
      {ToolCallStyle::mistral, "[TOOL_CALLS]write[ARGS]{\"text\": \""}};
  for (const auto& [style, head] : heads) {
    ReplyReader reader({style}, "", true, tools);
    (void)reader.push(head + "a");
    for (const std::string piece : {"one ", "two \u00fc", " three"}) {
      const ReplyPiece found = reader.push(piece);
      ASSERT_EQ(found.calls.size(), 1u) << head;
      EXPECT_NE(found.calls[0].arguments.find(piece), std::string::npos) << head;
    }
    // What was cut off is what was written.
    EXPECT_TRUE(reader.finish().calls.empty());
  }
}

// Text and calls of one piece keep their order.
TEST(ToolCalls, TextAfterACallComesAfterIt) {
  ReplyReader reader({ToolCallStyle::hermes}, "", true);
  const ReplyPiece piece =
      reader.push("Yes.<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>And so on");
  ASSERT_FALSE(piece.calls.empty());
  EXPECT_EQ(piece.content.substr(0, piece.calls[0].after), "Yes.");
  EXPECT_EQ(piece.content.substr(piece.calls[0].after), "And so on");
}

TEST(ToolCalls, HowTheTextIsCutChangesNothing) {
  for (const Recorded& one : replies()) {
    std::vector<std::string> bytes;
    for (const char c : one.text) bytes.emplace_back(1, c);
    EXPECT_EQ(read(one, bytes), one.whole) << one.text;
    for (std::size_t i = 0; i <= one.text.size(); ++i) {
      ASSERT_EQ(read(one, {one.text.substr(0, i), one.text.substr(i)}), one.whole)
          << one.text.substr(0, i) << "  |  " << one.text.substr(i);
      if (i % 3 != 0 || i + 5 > one.text.size()) continue;
      ASSERT_EQ(read(one, {one.text.substr(0, i), one.text.substr(i, 5), one.text.substr(i + 5)}),
                one.whole);
    }
  }
}

TEST(ToolCalls, EveryTruncatedReplyIsTakenApartToo) {
  for (const Recorded& one : replies()) {
    for (std::size_t i = 0; i < one.text.size(); ++i) {
      const Whole found = read(one, {one.text.substr(0, i)});
      EXPECT_LE(found.calls.size(), one.whole.calls.size());
      // A truncated call of a built-in tool is read as a program, so its name may differ.
      if (one.text.find(".call(") != std::string::npos) continue;
      for (std::size_t c = 0; c < found.calls.size(); ++c)
        EXPECT_EQ(found.calls[c].name, one.whole.calls[c].name) << one.text.substr(0, i);
    }
  }
}

// Where a grammar forces calls, a reply that is cut off anywhere has no content, however it comes.
TEST(ToolCalls, ForcedCallsThatAreCutOffLeaveNoContent) {
  using enum ToolCallStyle;
  const std::vector<std::pair<ToolCallStyle, std::string>> forced = {
      {hermes,
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
       "\"f\", \"arguments\": {}}\n</tool_call>"},
      {xml, "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"},
      {llama3, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {}}"},
      {mistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"},
      {deepseek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {gemma, "<|tool_call>call:f{x:1}<tool_call|>"}};
  for (const auto& [way, text] : forced) {
    for (std::size_t i = 0; i <= text.size(); ++i) {
      for (const bool by_bytes : {false, true}) {
        ReplyReader reader({.tools = way, .calls_only = true}, "", true);
        Whole whole;
        for (std::size_t at = 0; at < i; at += by_bytes ? 1 : i) {
          add(whole, reader.push(text.substr(at, by_bytes ? 1 : i)));
        }
        add(whole, reader.finish());
        EXPECT_EQ(whole.content, "") << text.substr(0, i);
      }
    }
  }
}

TEST(ToolCalls, AnEndThatIsCutOffIsNoContent) {
  const Recorded one = {ToolCallStyle::hermes, "", {}};
  EXPECT_EQ(read(one, {"Yes.<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_c"}),
            (Whole{"", "Yes.", {{"f", "{}"}}}));
}

TEST(ToolCalls, StreamArgumentsAsTheyCome) {
  const Recorded one = {ToolCallStyle::hermes, "", {}};
  ReplyReader reader(style_of(one), "", true);
  EXPECT_TRUE(reader.push("<tool_call>{\"name\": \"f\", ").empty());
  const ReplyPiece first = reader.push("\"arguments\": {\"x\": \"lo");
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "f");
  EXPECT_EQ(first.calls[0].arguments, "{\"x\": \"lo");
  const ReplyPiece second = reader.push("ng\"");
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_EQ(second.calls[0].name, "");
  EXPECT_EQ(second.calls[0].arguments, "ng\"");
  EXPECT_EQ(reader.push("}}</tool_call>").calls.at(0).arguments, "}");
  EXPECT_TRUE(reader.finish().empty());
}

TEST(ToolCalls, WithoutToolsACallIsContent) {
  Recorded one = {ToolCallStyle::hermes, "", {}};
  ReplyReader reader(style_of(one), "", false);
  Whole whole;
  add(whole, reader.push("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"));
  add(whole, reader.finish());
  EXPECT_EQ(whole.content, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  EXPECT_TRUE(whole.calls.empty());
}

TEST(ToolCalls, TheStyleIsReadOffTheTemplate) {
  LEQ_SHARED_OR_SKIP(folder, "data/chat/templates");
  const std::vector<std::pair<std::string, ToolCallStyle>> styles = {
      {"Qwen-Qwen2.5-7B-Instruct", ToolCallStyle::hermes},
      {"Qwen-Qwen3-0.6B", ToolCallStyle::hermes},
      {"Qwen-QwQ-32B", ToolCallStyle::hermes},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ToolCallStyle::hermes},
      {"HuggingFaceTB-SmolLM3-3B", ToolCallStyle::none},
      {"Qwen3-Coder", ToolCallStyle::xml},
      {"Qwen3.5-4B", ToolCallStyle::xml},
      {"meta-llama-Llama-3.1-8B-Instruct", ToolCallStyle::llama3},
      {"meta-llama-Llama-3.2-3B-Instruct", ToolCallStyle::llama3},
      {"mistralai-Mistral-Nemo-Instruct-2407", ToolCallStyle::mistral},
      {"mistral-common-v13", ToolCallStyle::mistral},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ToolCallStyle::deepseek},
      {"google-gemma-2-2b-it", ToolCallStyle::none}};
  for (const auto& [name, style] : styles) {
    EXPECT_EQ(reply_style(read_file(folder / (name + ".jinja"), 1 << 20)).tools, style) << name;
  }
  EXPECT_EQ(reply_style(read_file(folder / "Qwen-Qwen3-0.6B.jinja", 1 << 20)).think_end,
            "</think>");
  EXPECT_EQ(
      reply_style(read_file(folder / "meta-llama-Llama-3.1-8B-Instruct.jinja", 1 << 20)).think_end,
      "");
}

TEST(ToolCalls, ShownTokensAreTheSpecialOnesThatCallsBeginWith) {
  LEQ_SHARED_OR_SKIP(folder, "data/tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3");
  const Tokenizer tokenizer(import_tokenizer(folder).spec);
  ReplyStyle style;
  style.tools = ToolCallStyle::mistral;
  const auto shown = shown_tokens(style, tokenizer);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(tokenizer.decode(shown, true), "[TOOL_CALLS]");
  style.tools = ToolCallStyle::none;
  EXPECT_TRUE(shown_tokens(style, tokenizer).empty());
}

}  // namespace
}  // namespace leq
