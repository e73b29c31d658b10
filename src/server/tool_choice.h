// Which tools a model may or must call, from "tools" and "tool_choice" of a request.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace leq {

struct ToolChoice {
  enum class Use : std::uint8_t {
    none,    // there are no tools, or calls are not allowed
    free,    // the model decides
    forced,  // the reply must be a call
  };
  Use use = Use::none;
  std::string only = {};  // forced: the name of the tool; empty: any tool
};

// Throws Error naming the member at fault.
ToolChoice read_tool_choice(JsonNode body);

}  // namespace leq
