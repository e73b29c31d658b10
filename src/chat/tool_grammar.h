// Grammars of replies that may call tools: free text until a call begins in the notation of the
// model's template; then a call of one of the tools, with arguments that match its schema; then
// free text again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/tool_calls.h"
#include "grammar/grammar.h"

namespace leq {

enum class CallCount : std::uint8_t { one, any };  // calls in a reply; `one` ends the reply

struct CallRules {
  JsonNode tools = {};           // as in ChatRequest, each with a named function
  std::string_view source = {};  // names the tools in errors
  CallCount count = CallCount::any;
  std::span<const std::string> only = {};  // names of the tools that may be called; empty: all
  GrammarStop stopped = {};
};

// `prompt`: as for ReplyReader. Null if the style has no calls. Unsupported parts of a schema are
// ignored and noted (SchemaNotes; an invalid schema allows any object). If the tool has
// "strict": true, they throw Error naming the source, the tool and the keyword.
std::shared_ptr<const Grammar> tool_grammar(const ReplyStyle& style, const CallRules& rules,
                                            std::string_view prompt, SchemaNotes* notes = nullptr);

// The reply is one call or more in the style's notation, after reasoning if the style has any.
std::shared_ptr<const Grammar> forced_call_grammar(const ReplyStyle& style, const CallRules& rules,
                                                   std::string_view prompt,
                                                   SchemaNotes* notes = nullptr);

// The schema of an answer; if `schema` is nothing, the answer may be any object.
struct AnswerSchema {
  JsonNode schema = {};
  std::string_view source;
  bool strict = false;
  GrammarStop stopped = {};
};

// The reply is an answer, after optional reasoning.
std::shared_ptr<const Grammar> answer_grammar(const ReplyStyle& style, const AnswerSchema& answer,
                                              std::string_view prompt,
                                              SchemaNotes* notes = nullptr);
// The reply is calls in the style's notation or an answer, after reasoning. `style` has calls.
std::shared_ptr<const Grammar> call_or_answer_grammar(const ReplyStyle& style,
                                                      const CallRules& rules,
                                                      const AnswerSchema& answer,
                                                      std::string_view prompt,
                                                      SchemaNotes* notes = nullptr);

}  // namespace leq
