// A model's chat template: any bytes render a conversation, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "generate/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const leq::JsonTree conversation = leq::parse_json_tree(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": " u\n"},
          {"role": "assistant", "content": "<think>t</think> a", "tool_calls": [{"id": "1",
           "type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
          {"role": "tool", "content": "r", "tool_call_id": "1"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})",
      "conversation");
  try {
    const auto chat = leq::ChatTemplate::of_model(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    chat.render({.messages = conversation.root().find("messages"),
                 .tools = conversation.root().find("tools")},
                {});
  } catch (const leq::Error&) {
    // a refusal is an answer
  }
  return 0;
}
