// Grammars of replies that may call tools: free text until a call begins in the notation of the
// model's template; then a call of one of the tools, with arguments by its schema; then free text
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/json_tree.h"
#include "generate/grammar/grammar.h"
#include "generate/tool_calls.h"

namespace leq {

enum class CallCount : std::uint8_t { one, any };  // in one reply; after one it ends

// `tools` as in ChatRequest, each with a function that has a name; `prompt` as for ReplyReader.
// Null where the style has no calls. What a schema says and a grammar cannot hold is left out
// (SchemaNotes; a schema that is none means any object); with "strict": true beside it that is an
// Error naming `source`, the tool and the keyword.
std::shared_ptr<const Grammar> tool_grammar(const ReplyStyle& style, JsonNode tools,
                                            std::string_view prompt, CallCount count,
                                            std::string_view source, SchemaNotes* notes = nullptr);

// The reply is one call, {"name": ..., "arguments": {...}}, of the tool `only`, or of any where
// that is empty; after thoughts, where the style has some.
std::shared_ptr<const Grammar> forced_call_grammar(const ReplyStyle& style, JsonNode tools,
                                                   std::string_view only, std::string_view prompt,
                                                   std::string_view source,
                                                   SchemaNotes* notes = nullptr);

// An answer by a schema. Nothing for `schema`: any object.
struct AnswerSchema {
  JsonNode schema = {};
  std::string_view source;
  bool strict = false;
};

// The reply is an answer, after thoughts.
std::shared_ptr<const Grammar> answer_grammar(const ReplyStyle& style, const AnswerSchema& answer,
                                              std::string_view prompt,
                                              SchemaNotes* notes = nullptr);
// The reply is calls in the style's way or an answer, after thoughts. Not for styles without calls.
std::shared_ptr<const Grammar> call_or_answer_grammar(const ReplyStyle& style, JsonNode tools,
                                                      const AnswerSchema& answer,
                                                      std::string_view prompt, CallCount count,
                                                      std::string_view source,
                                                      SchemaNotes* notes = nullptr);

}  // namespace leq
