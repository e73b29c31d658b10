// What a model's reply says in its own way, taken apart: what it thought, what it says, and which
// tools it calls. Text comes in pieces and goes out in pieces; how it is cut changes nothing but
// where the pieces end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

enum class ToolCallStyle : std::uint8_t {
  none,
  hermes,    // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen, SmolLM3
  xml,       // <tool_call><function=NAME><parameter=KEY>...: Qwen3-Coder, Qwen3.5
  llama3,    // {"name": ..., "parameters": {...}}, or <|python_tag|>NAME.call(KEY="...")
  mistral,   // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]NAME[ARGS]{...}
  deepseek,  // <｜tool▁calls▁begin｜>...: DeepSeek-V3, R1
};

struct ReplyStyle {
  ToolCallStyle tools = ToolCallStyle::none;
  // What stands around thoughts; empty: none.
  std::string think_begin, think_end;
};

// How a model with this template writes, by the marks in the template.
ReplyStyle reply_style(std::string_view chat_template);

// Special tokens that a reply's text must show, since calls begin with them:
// EngineRequest::shown.
std::vector<Token> shown_tokens(const ReplyStyle& style, const Tokenizer& tokenizer);

struct ToolCallPiece {
  std::size_t index = 0;  // of the call in its reply, from 0 on
  std::string name = {};  // whole, in the first piece of a call; empty in all others
  // More of a JSON object's text. All pieces of a call together are one object, unless the reply
  // broke off in its middle.
  std::string arguments = {};
};

struct ReplyPiece {
  std::string thoughts;
  std::string content;
  std::vector<ToolCallPiece> calls;

  bool empty() const { return thoughts.empty() && content.empty() && calls.empty(); }
};

class ReplyReader {
 public:
  // `prompt`: the end of the rendered conversation, which may have begun the thoughts; `with_tools`
  // false: what looks like a call is content.
  ReplyReader(const ReplyStyle& style, std::string_view prompt, bool with_tools);

  ReplyPiece push(std::string_view text);
  // What was held back. A call that broke off before its name was known, or that is none, comes out
  // as content.
  ReplyPiece finish();

  std::size_t calls() const { return calls_; }  // begun so far

 private:
  ReplyStyle style_;
  std::size_t calls_ = 0;
};

}  // namespace leq
