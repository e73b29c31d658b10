// Converts a request of /v1/responses to one of /v1/chat/completions.
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/api_fields.h"
#include "server/foreign_chat.h"
#include "server/generation_call.h"

namespace leq {
namespace {

constexpr std::array kKept = {
    CopiedMember{"temperature", "temperature"},
    CopiedMember{"top_p", "top_p"},
    CopiedMember{"top_k", "top_k"},
    CopiedMember{"min_p", "min_p"},
    CopiedMember{"seed", "seed"},
    CopiedMember{"stop", "stop"},
    CopiedMember{"stream", "stream"},
    CopiedMember{"max_output_tokens", "max_tokens"},
    CopiedMember{"parallel_tool_calls", "parallel_tool_calls"},
    CopiedMember{"chat_template_kwargs", "chat_template_kwargs"},
    CopiedMember{"thinking_budget_tokens", "thinking_budget_tokens"},
    CopiedMember{"frequency_penalty", "frequency_penalty"},
    CopiedMember{"presence_penalty", "presence_penalty"},
};
constexpr std::array kKeptOfFunction = {
    CopiedMember{"name", "name"},
    CopiedMember{"description", "description"},
    CopiedMember{"parameters", "parameters"},
    CopiedMember{"strict", "strict"},
};
// Members that refer to stored state of earlier requests, which this server does not keep.
constexpr std::array<std::string_view, 4> kStateful = {"previous_response_id", "conversation",
                                                       "prompt", "background"};

std::string type_of(JsonNode item, std::string_view fallback) {
  return text_field(item, "type").value_or(std::string(fallback));
}

// A content that is a text or a list of text parts, joined.
std::string content_text(JsonNode content, std::string_view member) {
  if (content.is_string()) return content.text();
  if (!content || content.is_null()) return "";
  if (!content.is_array()) field_error(member, "a text or a list of parts", content);
  std::string text;
  for (const JsonNode part : content) {
    if (!part.is_object()) field_error(member, "objects with a type as parts", part);
    const std::string type = type_of(part, "");
    if (type == "refusal") {
      text += text_field(part, "refusal").value_or("");
    } else if (type.ends_with("text")) {
      text += text_field(part, "text").value_or("");
    } else {
      field_error(member, "a part of the type " + printable(type) +
                              " is not supported: the model reads texts");
    }
  }
  return text;
}

class ResponsesReader {
 public:
  explicit ResponsesReader(JsonNode body) : body_(body) {}

  ForeignChat read() {
    for (const std::string_view name : kStateful) {
      const JsonNode found = given_field(body_, name);
      if (found && !(found.is_boolean() && !found.boolean())) {
        field_error(name,
                    "is not supported: nothing is kept between requests; send the whole "
                    "conversation as input");
      }
    }
    read_input();
    read_tools();
    read_format();
    copy_members(body_, kKept, chat_);
    const JsonNode reasoning = object_field(body_, "reasoning");
    set_given(chat_, "reasoning_effort", given_field(reasoning, "effort"));
    return {std::move(chat_), std::move(notes_)};
  }

 private:
  void note(std::string text) { notes_.push_back(std::move(text)); }

  void read_input() {
    if (const auto text = text_field(body_, "instructions")) messages_.system(*text);
    const JsonNode input = given_field(body_, "input");
    if (!input || (!input.is_string() && !input.is_array())) {
      field_error("input", "a text or a list of items", input);
    }
    if (input.is_string()) messages_.user(input.text());
    for (const JsonNode item : input) {
      if (!item.is_object()) field_error("input", "objects as items", item);
      read_item(item, type_of(item, "message"));
    }
    if (messages_.empty()) field_error("input", "at least one item", input);
    chat_["messages"] = std::move(messages_).finish();
  }

  void read_item(JsonNode item, const std::string& type) {
    if (type == "message") return read_message(item);
    if (type == "function_call" || type == "custom_tool_call") {
      const bool custom = type == "custom_tool_call";
      const std::string input = text_field(item, custom ? "input" : "arguments").value_or("");
      return messages_.call(needed(item, "call_id"), needed(item, "name"),
                            custom ? Json::object({{"input", input}}).dump_any() : input);
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return messages_.tool_result(needed(item, "call_id"),
                                   content_text(item.find("output"), "input"));
    }
    if (type == "reasoning") {
      const std::string reasoning = content_text(given_field(item, "content"), "input");
      const std::string summary = content_text(given_field(item, "summary"), "input");
      return messages_.reasoning(reasoning.empty() ? summary : reasoning);
    }
    if (type == "item_reference") {
      field_error("input", "item_reference is not supported: nothing is kept between requests");
    }
    note("input: an item of the type " + printable(type) + " is left out");
  }

  void read_message(JsonNode item) {
    const std::string role = text_field(item, "role").value_or("user");
    const std::string text = content_text(item.find("content"), "input");
    if (role == "assistant") return messages_.assistant(text);
    if (role == "user") return messages_.user(text);
    if (role == "system" || role == "developer") return messages_.system(text);
    field_error("input", "the roles user, assistant, system and developer", item.find("role"));
  }

  static std::string needed(JsonNode item, std::string_view name) {
    const auto found = text_field(item, name);
    if (!found) field_error("input", std::string(name) + " in an item", item);
    return *found;
  }

  // Reads function tools; tools of other types are ignored with a note.
  void read_tools() {
    const JsonNode tools = given_field(body_, "tools"), choice = given_field(body_, "tool_choice");
    if (tools && !tools.is_array()) field_error("tools", "an array", tools);
    const JsonNode allowed = choice.is_object() ? choice.find("tools") : JsonNode();
    Json list = Json::array();
    for (const JsonNode tool : tools) {
      if (!tool.is_object()) field_error("tools", "objects", tool);
      const std::string type = type_of(tool, "");
      if (type != "function") {
        note("tools: " + printable(text_field(tool, "name").value_or(type)) +
             " is left out: only functions are supported, not " + printable(type));
        continue;
      }
      if (allowed && !is_allowed(allowed, tool)) continue;
      list.push_back(function_of(tool, kKeptOfFunction));
    }
    const bool any = !list.empty();
    if (any) chat_["tools"] = std::move(list);
    read_choice(choice, any);
  }

  static bool is_allowed(JsonNode allowed, JsonNode tool) {
    for (const JsonNode one : allowed) {
      const JsonNode name = one.find("name"), own = tool.find("name");
      if (name.is_string() && own.is_string() && name.text() == own.text()) return true;
    }
    return false;
  }

  void read_choice(JsonNode choice, bool any_tool) {
    if (!choice) return;
    if (choice.is_string()) {
      if (any_tool || choice.text() != "auto") chat_["tool_choice"] = choice.value();
      return;
    }
    const std::string type = choice.is_object() ? type_of(choice, "") : "";
    if (type == "allowed_tools") {
      chat_["tool_choice"] = text_field(choice, "mode").value_or("auto");
    } else if (type == "function") {
      chat_["tool_choice"] = chosen_function(choice);
    } else {
      field_error("tool_choice", "none, auto, required, a function or allowed_tools", choice);
    }
  }

  void read_format() {
    const JsonNode format = object_field(object_field(body_, "text"), "format");
    if (!format) return;
    if (type_of(format, "text") == "json_schema") {
      chat_["response_format"] = {{"type", "json_schema"}, {"json_schema", format.value()}};
    } else {
      chat_["response_format"] = format.value();
    }
  }

  JsonNode body_;
  ChatBuilder messages_;
  Json chat_ = Json::object();
  std::vector<std::string> notes_;
};

}  // namespace

ForeignChat chat_of_responses(JsonNode body) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  return ResponsesReader(body).read();
}

}  // namespace leq
