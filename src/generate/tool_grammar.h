// What a reply may be whose model may call tools: anything until a call begins in the way of the
// model's template; from there a call of one of the tools, with arguments by its schema; then
// anything again.
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
// Null where the style has no calls. Where a schema cannot be held (docs/grammars.md) that tool's
// arguments are any object; with "strict": true beside it that is an Error naming `source`, the
// tool and the keyword.
std::shared_ptr<const Grammar> tool_grammar(const ReplyStyle& style, JsonNode tools,
                                            std::string_view prompt, CallCount count,
                                            std::string_view source);

}  // namespace leq
