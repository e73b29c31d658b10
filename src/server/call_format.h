// Constraints on a call's reply: grammars from "response_format", "json_schema", "grammar", "tools"
// and "tool_choice", which apply after the model's reasoning.
#pragma once

#include <string_view>

#include "base/json.h"
#include "server/generation_call.h"
#include "server/tool_choice.h"

namespace leq {

// The requested format of an answer.
struct AnswerFormat {
  enum class Kind : std::uint8_t { any, schema, object, gbnf };
  Kind kind = Kind::any;
  std::string_view member = {};  // member of the body, for errors
  JsonNode schema = {};
  bool strict = false;
  std::string gbnf = {};
};

// Throws Error naming the member at fault.
AnswerFormat read_answer_format(JsonNode body);

// For completions, whose prompts do not determine whether reasoning follows.
void set_text_grammar(const AnswerFormat& format, const ApiModel& model, GenerationCall& call);
// Sets grammar, use, tools and notes of a chat whose prompt is already rendered. Throws Error
// naming the member at fault.
void set_chat_grammar(JsonNode body, const AnswerFormat& format, const ToolChoice& choice,
                      const ApiModel& model, GenerationCall& call);

}  // namespace leq
