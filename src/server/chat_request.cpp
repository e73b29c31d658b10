// Renders the conversation of a request as the prompt's text.

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "server/api_fields.h"
#include "server/call_settings.h"
#include "server/generation_call.h"
#include "server/tool_choice.h"

namespace leq {
namespace {

// Members as in vLLM: with continue_final_message, the reply continues the last message; with
// add_generation_prompt (default true), the prompt ends with the start of a new reply.
constexpr std::string_view kContinueFinal = "continue_final_message",
                           kAddPrompt = "add_generation_prompt";

// Whether the reply continues the last message. Throws Error if that is not possible.
bool continues_last_message(JsonNode body, JsonNode messages) {
  if (!flag_field(body, kContinueFinal)) return false;
  if (flag_field(body, kAddPrompt)) {
    field_error(kContinueFinal, "contradicts add_generation_prompt: leave one out");
  }
  const JsonNode last = messages.last(), role = last.find("role");
  if (!role.is_string() || role.text() != "assistant" || last.find("tool_calls").size() > 0) {
    field_error(kContinueFinal, "expected a text of the assistant as the last message");
  }
  return true;
}

// Template variables that only the server sets.
constexpr std::array<std::string_view, 8> kOwnVariables = {
    "messages",        "tools",       "documents",
    "bos_token",       "eos_token",   "add_generation_prompt",
    "raise_exception", "strftime_now"};

JsonNode template_variables(JsonNode body) {
  constexpr std::string_view kName = "chat_template_kwargs";
  const JsonNode variables = object_field(body, kName);
  for (const JsonNode one : variables) {
    if (std::ranges::find(kOwnVariables, one.key()) == kOwnVariables.end()) continue;
    field_error(kName, "may not set " + one.key() + ", which the request's own members say");
  }
  return variables;
}

// The variables plus "reasoning_effort", which some templates use.
Json with_effort(JsonNode variables, const std::string& effort) {
  Json extended = variables ? variables.value() : Json::object();
  if (!extended.contains("reasoning_effort")) extended["reasoning_effort"] = effort;
  return extended;
}

bool is_of_developer(JsonNode message) {
  const JsonNode role = message.find("role");
  return role.is_string() && role.text() == "developer";
}

// Replaces the role "developer" by "system", which every template supports.
Json with_known_roles(JsonNode messages) {
  Json changed = messages.value();
  for (Json& message : changed) {
    if (is_of_developer(message)) message["role"] = "system";
  }
  return changed;
}

bool has_developer(JsonNode messages) {
  return std::ranges::any_of(messages.value(), is_of_developer);
}

// The first message with which rendering fails with the same error (binary search); nullopt if none
// is found.
std::optional<std::size_t> message_at_fault(const ChatTemplate& chat, const ChatRequest& request,
                                            const ChatOptions& options, const std::string& error) {
  const auto fails = [&](std::size_t count) {
    const Json* const all = request.messages.value().begin();
    const Json part = Json::Array(all, all + count);
    ChatRequest shorter = request;
    shorter.messages = part;
    try {
      (void)chat.render(shorter, options);
      return false;
    } catch (const Error& other) {
      return error == other.what();
    }
  };
  std::size_t low = 1, high = request.messages.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (fails(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return request.messages.size() > 1 && fails(low) ? std::optional(low - 1) : std::nullopt;
}

std::vector<TextPart> render_checked(const ChatTemplate& chat, const ChatRequest& request,
                                     const ChatOptions& options) {
  for (const JsonNode message : request.messages) {
    if (!message.is_object()) field_error("messages", "objects with a role", message);
  }
  try {
    return chat.render(request, options);
  } catch (const Error& error) {
    const auto place = message_at_fault(chat, request, options, error.what());
    if (!place) throw;
    throw Error(marked_field("messages") + "[" + std::to_string(*place) + "]: " + error.what(),
                ErrorKind::bad_setting);
  }
}

void require_tools_are_shown(const ToolChoice& choice, const ApiModel& model) {
  const bool shown = model.template_has_tools || model.style.tools != ToolCallStyle::none;
  if (choice.use != ToolChoice::Use::free || shown) return;
  field_error("tools",
              "this model's chat template does not show tools to the model; leave them "
              "out, or require a call with tool_choice");
}

}  // namespace

std::vector<TextPart> render_chat(JsonNode body, const ApiModel& model) {
  require(model.chat != nullptr, model.name, ": ",
          model.chat_error.empty() ? "the model has no chat template" : model.chat_error,
          "; start the server with ", Setting{"chat_template"}, ", or use /v1/completions");
  ChatRequest request;
  request.messages = given_field(body, "messages");
  if (!request.messages || !request.messages.is_array() || request.messages.size() == 0) {
    field_error("messages", "an array of messages", request.messages);
  }
  const ToolChoice choice = read_tool_choice(body);
  require_tools_are_shown(choice, model);
  if (choice.use != ToolChoice::Use::none) request.tools = body.find("tools");
  request.variables = template_variables(body);
  ChatOptions options = model.rendering;
  const ThinkingSettings thinking = read_thinking(body, model);
  if (thinking.enabled) options.enable_thinking = *thinking.enabled;
  const bool continues = continues_last_message(body, request.messages);
  const bool asks = !given_field(body, kAddPrompt) || flag_field(body, kAddPrompt);
  options.ask_for_reply = asks && !continues;
  Json roles, variables;
  if (!model.template_has_developer && has_developer(request.messages)) {
    roles = with_known_roles(request.messages);
    request.messages = roles;
  }
  if (!thinking.effort.empty()) {
    variables = with_effort(request.variables, thinking.effort);
    request.variables = variables;
  }
  std::vector<TextPart> parts = render_checked(*model.chat, request, options);
  if (continues && !reopen_last_message(parts, request.messages)) {
    field_error(kContinueFinal, "the chat template does not end with the last message's text");
  }
  return parts;
}

}  // namespace leq
