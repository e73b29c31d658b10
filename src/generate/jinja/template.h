// A model's own chat template, a Jinja program, compiled once and run over conversations. It is
// total: whatever the template and the conversation, it ends with a text or an Error within bounded
// steps, memory and depth (docs/chat-templates.md).
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "generate/jinja/syntax.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// How the arguments of tool calls in earlier replies are shown to a template: most write an object
// as JSON themselves, some add a text to another.
enum class ToolArguments : std::uint8_t { objects, texts };

struct JinjaInput {
  JsonNode messages, tools, variables;  // as ChatRequest has them; tools may be nothing
  std::string_view bos, eos;
  std::string_view date;  // date_string, where it is not empty
  bool add_generation_prompt = true;
  bool enable_thinking = true;
  std::tm now = {};  // of strftime_now
  ToolArguments arguments = ToolArguments::objects;
  bool null_is_empty = false;  // a content of null, or none, is shown as ""
  // What a reply thought (reasoning_content) is shown as a block of its content: {"type":
  // "thinking", "thinking": ...} before the text's.
  bool thought_blocks = false;
};

class JinjaTemplate {
 public:
  // Throws Error naming `source`, the line, and what is expected or not supported there.
  JinjaTemplate(std::string_view text, std::string_view source);

  // Whether the template reads thoughts from blocks of a content (Ministral 3).
  bool reads_thought_blocks() const { return reads_thought_blocks_; }
  // What the template wrote itself may form special tokens, what came with the conversation may
  // not. Throws Error naming the source and the line.
  std::vector<TextPart> render(const JinjaInput& input) const;

 private:
  std::string source_;
  jinja::Syntax syntax_;
  bool reads_thought_blocks_;
};

}  // namespace leq
