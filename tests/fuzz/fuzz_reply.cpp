// Any bytes as a model's reply: its reasoning, content and calls do not depend on how it is split.
// The first byte of an input selects the style, whether the prompt has begun the reasoning, and
// the length of the pieces.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls.h"
#include "fuzz/seeded.h"

namespace {

struct Style {
  leq::ToolCallStyle tools;
  const char *think_begin, *think_end, *example;
};
using enum leq::ToolCallStyle;
constexpr std::array<Style, 8> kStyles = {{
    {none, "<think>", "</think>", "<think>a</think> b"},
    {hermes, "<think>", "</think>",
     "<think>a</think>b<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\\\"\"]}}\n"
     "</tool_call>\n<tool_call>{\"arguments\": \"{}\", \"name\": \"g\"}</tool_call>c"},
    {xml, "<think>", "</think>",
     "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=y>\na\"b\n</parameter>"
     "\n</function>\n</tool_call>"},
    {llama3, "", "",
     "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; <|python_tag|>f.call(x=\"1\")"},
    {mistral, "[THINK]", "[/THINK]",
     "[THINK]a[/THINK][TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"
     "[TOOL_CALLS]f[CALL_ID]1[ARGS]{\"x\": 1}"},
    {deepseek, "<think>", "</think>",
     "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {gemma, "<|channel>thought", "<channel|>",
     "<|channel>thought\na<channel|><|tool_call>call:f{x:1,y:<|\"|>a<|\"|>,z:[true]}<tool_call|>"},
    {harmony, "", "",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"x\": "
     "1}<|call|><|start|>assistant<|channel|>final<|message|>b"},
}};

std::vector<std::string> examples() {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    texts.push_back(static_cast<char>(16 * (i + 1) + i) + std::string(kStyles[i].example));
  }
  return texts;
}

struct Whole {
  std::string reasoning, content;
  std::vector<std::string> calls;

  void add(const leq::ReplyPiece& piece) {
    reasoning += piece.reasoning;
    content += piece.content;
    for (const leq::ToolCallPiece& part : piece.calls) {
      const bool begins = part.index == calls.size();
      if (begins == part.name.empty() || part.index + 1 != calls.size() + (begins ? 1 : 0)) {
        std::abort();
      }
      if (begins) calls.push_back(part.name + '\n');
      calls.back() += part.arguments;
    }
  }
  bool operator==(const Whole&) const = default;
};

Whole read(std::uint8_t choice, std::string_view text, std::size_t piece) {
  static const leq::Json tools = leq::parse_json(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":)"
      R"({"x":{"type":"integer"},"y":{"type":"string"}}}}},{"type":"function","function":)"
      R"({"name":"g"}}])",
      "tools");
  const Style& style = kStyles[choice % 8];
  leq::ReplyReader reader(
      {style.tools, style.think_begin, style.think_end, true, style.tools == harmony},
      (choice & 8) != 0 ? style.think_begin : "", true, tools);
  Whole whole;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    whole.add(reader.push(text.substr(0, piece)));
  }
  whole.add(reader.finish());
  if (reader.calls() != whole.calls.size()) std::abort();
  return whole;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (read(data[0], text, 1 + data[0] / 16) != read(data[0], text, size)) std::abort();
  return 0;
}
