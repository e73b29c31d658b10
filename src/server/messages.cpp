// Requests and replies of /v1/messages, Anthropic's API.
#include <array>
#include <cstdint>
#include <utility>

#include "base/json_repair.h"
#include "base/text.h"
#include "server/dialects.h"

namespace leq {
namespace {

constexpr std::array kKeptOfMessages = {
    CopiedMember{"stop", "stop"},
    CopiedMember{"stop_sequences", "stop"},
    CopiedMember{"response_format", "response_format"},
    CopiedMember{"json_schema", "json_schema"},
    CopiedMember{"grammar", "grammar"},
    CopiedMember{"continue_final_message", "continue_final_message"},
    CopiedMember{"add_generation_prompt", "add_generation_prompt"},
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

std::string type_of_block(JsonNode block, std::string_view member) {
  if (!block.is_object()) field_error(member, "objects with a type as blocks", block);
  return text_field(block, "type").value_or("text");
}

// Detects a block that Claude Code puts before the system prompt. It is not meant for the model and
// differs in each request, so that no cached prefix would match.
bool is_billing_header(std::string_view text) {
  return text.starts_with("x-anthropic-billing-header:");
}

class MessagesReader : public ChatBuilder {
 public:
  using ChatBuilder::ChatBuilder;

  ForeignChat read() {
    read_messages();
    read_choice(read_tools({.function = "custom",
                            .fallback = "custom",
                            .supported = "tools with an input_schema",
                            .members = kKeptOfTool}));
    const auto most = whole_field(body_, "max_tokens", 1, kMaxTokensRequested);
    if (!most) chat_.note("max_tokens: is missing; the server's limit applies");
    read_thinking(most.value_or(kMaxTokensRequested));
    copy_members(kKeptOfMessages);
    if (const JsonNode stops = given_field(body_, "stop_sequences"); stops && !stops.is_array()) {
      field_error("stop_sequences", "an array of texts", stops);
    }
    const JsonNode servers = given_field(body_, "mcp_servers");
    if (servers.size() > 0)
      field_error("mcp_servers", "is not supported: the server asks no other");
    return std::move(chat_);
  }

 private:
  void read_messages() {
    std::string lead;
    const JsonNode given = given_field(body_, "system");
    if (given.is_array()) {
      for (const JsonNode block : given) {
        const std::string text = read_text(block, "system", "", true);
        if (!is_billing_header(text)) lead += (lead.empty() ? "" : "\n") + text;
      }
    } else {
      lead = read_text(given, "system", "", true);
    }
    if (!lead.empty()) system(lead);
    const JsonNode messages = given_field(body_, "messages");
    if (!messages || !messages.is_array()) {
      field_error("messages", "an array of messages", messages);
    }
    if (messages.size() == 0) field_error("messages", "expected at least one message");
    std::size_t replied = 0;  // number of messages up to the last reply
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (text_field(messages[i], "role") == "assistant") replied = i + 1;
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const JsonNode one = messages[i];
      if (!one.is_object()) field_error("messages", "objects with a role", one);
      const std::string role = text_field(one, "role").value_or("");
      if (role == "assistant") {
        read_assistant(one.find("content"));
      } else if (role == "user") {
        read_user(one.find("content"), i >= replied);
      } else if (role == "system") {
        system(read_text(one.find("content"), "messages", "\n", false));
      } else {
        field_error("messages", "the roles user, assistant and system", one.find("role"));
      }
    }
    finish_messages();
  }

  // Tool results come first, then the user's text, which the model must be able to read if it is
  // not answered yet.
  void read_user(JsonNode content, bool must_read) {
    if (!content.is_array()) return user(read_text(content, "messages", "\n", must_read));
    std::string said;
    bool any = content.size() == 0;
    for (const JsonNode block : content) {
      const std::string type = type_of_block(block, "messages");
      if (type == "tool_result") {
        const auto id = text_field(block, "tool_use_id");
        if (!id) field_error("messages", "tool_use_id in a tool_result", block);
        tool_result(*id, read_text(block.find("content"), "messages", "\n", false));
        continue;
      }
      said += (any ? "\n" : "") + read_text(block, "messages", "\n", must_read);
      any = true;
    }
    if (any) user(said);
  }

  void read_assistant(JsonNode content) {
    if (!content.is_array()) return assistant(read_text(content, "messages", "\n", false));
    for (const JsonNode block : content) {
      const std::string type = type_of_block(block, "messages");
      if (type == "thinking") {
        reasoning(text_field(block, "thinking").value_or(""));
      } else if (type == "tool_use") {
        const auto id = text_field(block, "id"), name = text_field(block, "name");
        if (!id || !name) field_error("messages", "id and name in a tool_use", block);
        const JsonNode input = given_field(block, "input");
        call(*id, *name, input ? input.dump() : "{}");
      } else if (type != "redacted_thinking") {
        assistant(read_text(block, "messages", "\n", false));
      }
    }
  }

  void read_choice(bool any_tool) {
    const JsonNode choice = object_field(body_, "tool_choice");
    if (!choice) return;
    if (flag_field(choice, "disable_parallel_tool_use")) chat_.body["parallel_tool_calls"] = false;
    const std::string type = text_field(choice, "type").value_or("");
    if (type == "auto" && !any_tool) return;
    if (type == "auto" || type == "none") {
      chat_.body["tool_choice"] = type;
    } else if (type == "any") {
      chat_.body["tool_choice"] = "required";
    } else if (type == "tool") {
      choose_function(choice);
    } else {
      field_error("tool_choice", "the type auto, any, tool or none", choice);
    }
  }

  // `most`: tokens of the reply.
  void read_thinking(std::int64_t most) {
    const JsonNode thinking = object_field(body_, "thinking");
    const std::string type = text_field(thinking, "type").value_or("");
    if (thinking && type != "disabled" && type != "enabled" && type != "adaptive") {
      field_error("thinking", "the type enabled, adaptive or disabled", thinking);
    }
    const JsonNode output = object_field(body_, "output_config");
    if (type == "disabled") {
      chat_.body["reasoning_effort"] = "none";
    } else {
      set_given({"output_config.effort", "reasoning_effort"}, given_field(output, "effort"));
      const JsonNode budget = given_field(thinking, "budget_tokens");
      set_given({"thinking.budget_tokens", "thinking_budget_tokens"}, budget);
      if (budget.is_number() && budget.number() >= static_cast<double>(most)) {
        field_error("thinking.budget_tokens", "fewer than max_tokens", budget);
      }
    }
    const JsonNode inner = object_field(output, "format");
    const JsonNode format = inner ? inner : object_field(body_, "output_format");
    if (!format) return;
    chat_.names.push_back({inner ? "output_config.format" : "output_format", "response_format"});
    Json schema = Json::object();
    if (const JsonNode given = given_field(format, "schema")) schema["schema"] = given.value();
    chat_.body["response_format"] = {{"type", text_field(format, "type").value_or("")},
                                     {"json_schema", std::move(schema)}};
  }
};

// Returns null while the reply is being generated.
Json stop_reason(const Choice& choice) {
  switch (choice.end.stopped) {
    case StopReason::none:
      return nullptr;
    case StopReason::end_token:
      return choice.calls.empty() ? "end_turn" : "tool_use";
    case StopReason::stop_string:
      return choice.calls.empty() ? "stop_sequence" : "tool_use";
    case StopReason::context_full:
      return "model_context_window_exceeded";
    default:
      break;
  }
  return "max_tokens";
}

Json stop_sequence(const Choice& choice) {
  return choice.end.stop_string.empty() ? Json() : Json(choice.end.stop_string);
}

// The id of a call in Anthropic's format.
std::string tool_use_id(const Choice::Call& call) {
  return "toolu_" + call.id.substr(call.id.find('_') + 1);
}

// Blocks (thinking, text, tool_use) and their stream events.
class MessagesWriter : public ItemWriter {
 public:
  using ItemWriter::ItemWriter;

  std::string begin(const std::vector<Choice>& choices) override {
    Json message = message_json(choices.front(), Json::array());
    message["usage"] = usage_json(choices);
    return event("message_start", {{"message", std::move(message)}}) + ping();
  }
  std::string end(const Choice&) override { return close(true); }
  std::string finish(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    Json last = {
        {"delta", {{"stop_reason", stop_reason(choice)}, {"stop_sequence", stop_sequence(choice)}}},
        {"usage", usage_json(choices)}};
    add_warnings(last);
    return event("message_delta", std::move(last)) + event("message_stop", Json::object());
  }

  std::string failed(const Error& error) override {
    return close(false) + sent_event("error", anthropic_error_json(500, error.what()));
  }
  std::string ping() const override { return event("ping", Json::object()); }
  std::string whole(const std::vector<Choice>& choices) override {
    const Choice& choice = choices.front();
    Json content = Json::array();
    if (!choice.reasoning.empty()) {
      content.push_back(
          {{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", "none"}});
    }
    std::size_t said = 0;  // bytes of the content
    const auto say_up_to = [&](std::size_t end) {
      if (end == said) return;
      content.push_back({{"type", "text"}, {"text", choice.content.substr(said, end - said)}});
      said = end;
    };
    for (const Choice::Call& call : choice.calls) {
      say_up_to(call.after);
      content.push_back({{"type", "tool_use"},
                         {"id", tool_use_id(call)},
                         {"name", call.client_name()},
                         {"input", repaired_object(call.arguments)}});
    }
    say_up_to(choice.content.size());
    Json json = message_json(choice, std::move(content));
    json["usage"] = usage_json(choices);
    return json.dump_any();
  }

 private:
  std::string event(const std::string& type, Json members) const {
    members["type"] = type;
    return sent_event(type, members.dump_any());
  }
  std::string delta_event(Json delta) const {
    return event("content_block_delta", {{"index", index_}, {"delta", std::move(delta)}});
  }
  std::string open(const Choice::Call* call) override {
    Json block;
    if (call != nullptr) {
      block = {{"type", "tool_use"},
               {"id", tool_use_id(*call)},
               {"name", call->client_name()},
               {"input", Json::object()}};
    } else if (kind_ == Kind::reasoning) {
      block = {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    } else {
      block = {{"type", "text"}, {"text", ""}};
    }
    return event("content_block_start", {{"index", index_}, {"content_block", std::move(block)}});
  }

  std::string extend(const std::string& text) override {
    if (kind_ == Kind::reasoning)
      return delta_event({{"type", "thinking_delta"}, {"thinking", text}});
    if (kind_ == Kind::text) return delta_event({{"type", "text_delta"}, {"text", text}});
    return delta_event({{"type", "input_json_delta"}, {"partial_json", text}});
  }

  std::string close(bool) override {
    if (kind_ == Kind::none) return "";
    std::string events;
    if (kind_ == Kind::reasoning) {
      events = delta_event({{"type", "signature_delta"}, {"signature", "none"}});
    }
    kind_ = Kind::none;
    return events + event("content_block_stop", {{"index", index_++}});
  }

  Json message_json(const Choice& choice, Json content) const {
    Json json = {{"id", "msg_" + id_},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"model", model_.name},
                 {"content", std::move(content)},
                 {"stop_reason", stop_reason(choice)},
                 {"stop_sequence", stop_sequence(choice)}};
    add_warnings(json);
    return json;
  }

  // Prompt tokens found in the KV cache are counted separately.
  Json usage_json(const std::vector<Choice>& choices) const {
    const TokenCounts counts = count_tokens(choices);
    return {{"input_tokens", counts.prompt - counts.cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", counts.cached},
            {"output_tokens", counts.reply}};
  }

  std::size_t index_ = 0;  // index of the block
};

}  // namespace

ForeignChat chat_of_messages(JsonNode body) { return MessagesReader(body).read(); }

std::unique_ptr<ReplyWriter> messages_writer(const GenerationCall& call, const ApiModel& model) {
  return std::make_unique<MessagesWriter>(call, model);
}

}  // namespace leq
