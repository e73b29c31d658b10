// A model's own chat template, a Jinja program that is compiled once and run on conversations. It
// always terminates, with a text or an Error, within bounded steps, memory and depth, whatever the
// template and the conversation (docs/chat-templates.md).
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/jinja/syntax.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// The form in which a template gets the arguments of earlier tool calls: most templates convert an
// object to JSON themselves, some concatenate a string with other text.
enum class ToolArguments : std::uint8_t { objects, texts };

struct JinjaInput {
  JsonNode messages, tools, variables;  // as in ChatRequest; tools may be nothing
  std::string_view bos, eos;
  std::string_view date;  // date_string, if not empty
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  std::tm now = {};  // the result of strftime_now
  ToolArguments arguments = ToolArguments::objects;
  bool null_is_empty = false;  // a content that is null or absent becomes ""
  // Shows reasoning_content as a block of the content: {"type": "thinking", "thinking": ...} before
  // the text block.
  bool thought_blocks = false;
};

class JinjaTemplate {
 public:
  // Throws Error naming `source`, the line, and the expected or the unsupported construct.
  JinjaTemplate(std::string_view text, std::string_view source);

  // Whether the template reads reasoning from blocks of a content (Ministral 3).
  bool reads_thought_blocks() const { return reads_thought_blocks_; }
  // Parts that the template wrote itself may contain special tokens; parts from the conversation
  // may not. Throws Error naming the source and the line.
  std::vector<TextPart> render(const JinjaInput& input) const;

 private:
  std::string source_;
  jinja::Syntax syntax_;
  bool reads_thought_blocks_;
};

}  // namespace leq
