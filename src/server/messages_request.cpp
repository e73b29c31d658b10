// Converts a request of /v1/messages to one of /v1/chat/completions.
#include <array>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "server/api_fields.h"
#include "server/foreign_chat.h"
#include "server/generation_call.h"

namespace leq {
namespace {

constexpr std::array kKeptOfMessages = {
    CopiedMember{"temperature", "temperature"},
    CopiedMember{"top_p", "top_p"},
    CopiedMember{"top_k", "top_k"},
    CopiedMember{"min_p", "min_p"},
    CopiedMember{"seed", "seed"},
    CopiedMember{"stop_sequences", "stop"},
    CopiedMember{"stream", "stream"},
    CopiedMember{"max_tokens", "max_tokens"},
    CopiedMember{"chat_template_kwargs", "chat_template_kwargs"},
};
constexpr std::array kKeptOfTool = {
    CopiedMember{"name", "name"},
    CopiedMember{"description", "description"},
    CopiedMember{"input_schema", "parameters"},
    CopiedMember{"strict", "strict"},
};

[[noreturn]] void no_such_block(std::string_view member, const std::string& type) {
  field_error(member, "a block of the type " + printable(type) +
                          " is not supported: the model reads texts");
}

// The text of a text block; nullopt for other kinds. cache_control is ignored, because cached
// prefixes are found automatically.
std::optional<std::string> block_text(JsonNode block, const std::string& type) {
  if (type == "text") return text_field(block, "text").value_or("");
  if (type != "document") return std::nullopt;
  const JsonNode source = object_field(block, "source");
  if (text_field(source, "type").value_or("") != "text") return std::nullopt;
  return text_field(source, "data").value_or("");
}

std::string type_of_block(JsonNode block, std::string_view member) {
  if (!block.is_object()) field_error(member, "objects with a type as blocks", block);
  return text_field(block, "type").value_or("text");
}

// Detects a block that Claude Code puts before the system prompt. It is not meant for the model and
// differs in each request, so that no cached prefix would match.
bool is_billing_header(std::string_view text) {
  return text.starts_with("x-anthropic-billing-header:");
}

// A content that is a text or a list of text blocks, joined with newlines.
std::string texts_of(JsonNode content, std::string_view member) {
  if (!content || content.is_null()) return "";
  if (content.is_string()) return content.text();
  if (!content.is_array()) field_error(member, "a text or a list of blocks", content);
  std::string all;
  for (const JsonNode block : content) {
    const std::string type = type_of_block(block, member);
    const auto text = block_text(block, type);
    if (!text) no_such_block(member, type);
    if (member == "system" && is_billing_header(*text)) continue;
    all += (all.empty() ? "" : "\n") + *text;
  }
  return all;
}

class MessagesReader {
 public:
  explicit MessagesReader(JsonNode body) : body_(body) {}

  ForeignChat read() {
    read_messages();
    read_tools();
    read_thinking();
    copy_members(body_, kKeptOfMessages, chat_);
    const JsonNode servers = given_field(body_, "mcp_servers");
    if (servers.size() > 0)
      field_error("mcp_servers", "is not supported: the server asks no other");
    return {std::move(chat_), std::move(notes_)};
  }

 private:
  void read_messages() {
    const std::string system = texts_of(given_field(body_, "system"), "system");
    if (!system.empty()) messages_.system(system);
    const JsonNode messages = given_field(body_, "messages");
    if (!messages || !messages.is_array() || messages.size() == 0) {
      field_error("messages", "an array of messages", messages);
    }
    for (const JsonNode one : messages) {
      if (!one.is_object()) field_error("messages", "objects with a role", one);
      const std::string role = text_field(one, "role").value_or("");
      if (role == "assistant") {
        read_assistant(one.find("content"));
      } else if (role == "user") {
        read_user(one.find("content"));
      } else if (role == "system") {
        messages_.system(texts_of(one.find("content"), "messages"));
      } else {
        field_error("messages", "the roles user, assistant and system", one.find("role"));
      }
    }
    chat_["messages"] = std::move(messages_).finish();
  }

  // Tool results come first, then the user's text.
  void read_user(JsonNode content) {
    if (!content.is_array()) return messages_.user(texts_of(content, "messages"));
    std::string said;
    bool any = content.size() == 0;
    for (const JsonNode block : content) {
      const std::string type = type_of_block(block, "messages");
      if (type == "tool_result") {
        const auto id = text_field(block, "tool_use_id");
        if (!id) field_error("messages", "tool_use_id in a tool_result", block);
        messages_.tool_result(*id, texts_of(block.find("content"), "messages"));
        continue;
      }
      const auto text = block_text(block, type);
      if (!text) no_such_block("messages", type);
      said += (any ? "\n" : "") + *text;
      any = true;
    }
    if (any) messages_.user(said);
  }

  void read_assistant(JsonNode content) {
    if (!content.is_array()) return messages_.assistant(texts_of(content, "messages"));
    for (const JsonNode block : content) {
      const std::string type = type_of_block(block, "messages");
      if (type == "thinking") {
        messages_.reasoning(text_field(block, "thinking").value_or(""));
      } else if (type == "tool_use") {
        const auto id = text_field(block, "id"), name = text_field(block, "name");
        if (!id || !name) field_error("messages", "id and name in a tool_use", block);
        const JsonNode input = given_field(block, "input");
        messages_.call(*id, *name, input ? input.dump() : "{}");
      } else if (type != "redacted_thinking") {
        const auto text = block_text(block, type);
        if (!text) no_such_block("messages", type);
        messages_.assistant(*text);
      }
    }
  }

  void read_tools() {
    const JsonNode tools = given_field(body_, "tools");
    if (tools && !tools.is_array()) field_error("tools", "an array", tools);
    Json list = Json::array();
    for (const JsonNode tool : tools) {
      if (!tool.is_object()) field_error("tools", "objects", tool);
      const std::string type = text_field(tool, "type").value_or("custom");
      if (type != "custom") {
        notes_.push_back("tools: " + printable(text_field(tool, "name").value_or(type)) +
                         " is left out: only tools with an input_schema are supported, not " +
                         printable(type));
        continue;
      }
      list.push_back(function_of(tool, kKeptOfTool));
    }
    const bool any = !list.empty();
    if (any) chat_["tools"] = std::move(list);
    read_choice(any);
  }

  void read_choice(bool any_tool) {
    const JsonNode choice = object_field(body_, "tool_choice");
    if (!choice) return;
    if (flag_field(choice, "disable_parallel_tool_use")) chat_["parallel_tool_calls"] = false;
    const std::string type = text_field(choice, "type").value_or("");
    if (type == "auto" && !any_tool) return;
    if (type == "auto" || type == "none") {
      chat_["tool_choice"] = type;
    } else if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "tool") {
      chat_["tool_choice"] = chosen_function(choice);
    } else {
      field_error("tool_choice", "the type auto, any, tool or none", choice);
    }
  }

  void read_thinking() {
    const JsonNode thinking = object_field(body_, "thinking");
    const std::string type = text_field(thinking, "type").value_or("");
    const JsonNode output = object_field(body_, "output_config");
    if (type == "disabled") {
      chat_["reasoning_effort"] = "none";
    } else {
      set_given(chat_, "reasoning_effort", given_field(output, "effort"));
      set_given(chat_, "thinking_budget_tokens", given_field(thinking, "budget_tokens"));
    }
    JsonNode format = object_field(output, "format");
    if (!format) format = object_field(body_, "output_format");
    if (!format) return;
    Json schema = Json::object();
    set_given(schema, "schema", given_field(format, "schema"));
    chat_["response_format"] = {{"type", text_field(format, "type").value_or("")},
                                {"json_schema", std::move(schema)}};
  }

  JsonNode body_;
  ChatBuilder messages_;
  Json chat_ = Json::object();
  std::vector<std::string> notes_;
};

}  // namespace

ForeignChat chat_of_messages(JsonNode body) {
  require(body.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  return MessagesReader(body).read();
}

}  // namespace leq
