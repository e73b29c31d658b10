#include "server/tool_choice.h"

#include "base/error.h"
#include "server/api_fields.h"

namespace leq {
namespace {

constexpr std::size_t kMostTools = 256;

JsonNode function_of(JsonNode tool) {
  const JsonNode function = tool.is_object() ? given_field(tool, "function") : JsonNode();
  if (!function || !function.is_object()) {
    field_error("tools", "objects as {\"type\": \"function\", \"function\": {...}}", tool);
  }
  return function;
}

std::string name_of(JsonNode tool) {
  const JsonNode name = given_field(function_of(tool), "name");
  if (!name || !name.is_string() || name.text().empty()) {
    field_error("tools", "a name in each function", tool);
  }
  return name.text();
}

bool has_tool(JsonNode tools, const std::string& name) {
  for (const JsonNode tool : tools) {
    if (name_of(tool) == name) return true;
  }
  return false;
}

}  // namespace

ToolChoice read_tool_choice(JsonNode body) {
  const JsonNode tools = given_field(body, "tools");
  const JsonNode wanted = given_field(body, "tool_choice");
  const bool has_tools = tools && tools.is_array() && tools.size() > 0;
  if (tools && !tools.is_array()) field_error("tools", "an array", tools);
  if (tools && tools.size() > kMostTools) {
    field_error("tools", "at most " + std::to_string(kMostTools) + " tools");
  }
  for (const JsonNode tool : tools) {
    name_of(tool);
    object_field(function_of(tool), "parameters");
  }
  const std::string word = wanted && wanted.is_string() ? wanted.text() : "";
  if (wanted && wanted.is_object()) {
    const auto name = text_field(object_field(wanted, "function"), "name");
    if (!name || name->empty()) field_error("tool_choice", "a function with a name", wanted);
    if (!has_tools) field_error("tool_choice", "there are no tools to choose from");
    if (!has_tool(tools, *name)) field_error("tool_choice", "there is no tool of this name");
    return {ToolChoice::Use::forced, *name};
  }
  if (wanted && word != "none" && word != "auto" && word != "required") {
    field_error("tool_choice", "none, auto, required or a function", wanted);
  }
  if (word == "required") {
    if (!has_tools) field_error("tool_choice", "there are no tools to choose from");
    return {ToolChoice::Use::forced};
  }
  return {has_tools && word != "none" ? ToolChoice::Use::free : ToolChoice::Use::none};
}

}  // namespace leq
