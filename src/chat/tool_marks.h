// The literal texts that mark tool calls in the notations of models' templates.
#pragma once

#include <string_view>

namespace leq {

inline constexpr std::string_view kHermesCall = "<tool_call>", kHermesCallEnd = "</tool_call>";
inline constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
inline constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
inline constexpr std::string_view kMistralCalls = "[TOOL_CALLS]", kArgs = "[ARGS]",
                                  kCallId = "[CALL_ID]";
inline constexpr std::string_view kPythonCall = "<|python_tag|>";
inline constexpr std::string_view kDeepSeekCalls = "<｜tool▁calls▁begin｜>",
                                  kDeepSeekCallsEnd = "<｜tool▁calls▁end｜>";
inline constexpr std::string_view kDeepSeekCall = "<｜tool▁call▁begin｜>",
                                  kDeepSeekCallEnd = "<｜tool▁call▁end｜>",
                                  kDeepSeekSep = "<｜tool▁sep｜>";

}  // namespace leq
