#include "server/foreign_chat.h"

#include <array>
#include <utility>

#include "server/api_fields.h"
#include "server/json_text.h"

namespace leq {
namespace {

std::string message(std::string_view role, std::string_view text) {
  JsonObjectText json;
  json.add_text("role", role);
  json.add_text("content", text);
  return std::move(json).finish();
}

}  // namespace

void copy_members(JsonNode body, std::span<const CopiedMember> members, JsonObjectText& chat) {
  for (const CopiedMember& member : members) {
    chat.add_given(member.as, given_field(body, member.name));
  }
}

std::string function_of(JsonNode tool, std::span<const CopiedMember> members) {
  JsonObjectText function, whole;
  copy_members(tool, members, function);
  whole.add_text("type", "function");
  whole.add_raw("function", std::move(function).finish());
  return std::move(whole).finish();
}

std::string chosen_function(JsonNode choice) {
  static constexpr std::array kName = {CopiedMember{"name", "name"}};
  return function_of(choice, kName);
}

void ChatText::add(std::string_view text) {
  if (!std::exchange(has_lead_, true) && !lead_.empty()) messages_ = message("system", lead_);
  messages_ += (messages_.empty() ? "" : ",") + std::string(text);
}

void ChatText::end_turn() {
  if (std::exchange(has_user_, false)) add(message("user", std::exchange(user_, {})));
  if (!std::exchange(has_turn_, false)) return;
  JsonObjectText json;
  json.add_text("role", "assistant");
  json.add_text("content", std::exchange(said_, {}));
  if (!reasoning_.empty()) json.add_text("reasoning_content", std::exchange(reasoning_, {}));
  if (!calls_.empty()) json.add_raw("tool_calls", "[" + std::exchange(calls_, {}) + "]");
  add(std::move(json).finish());
}

void ChatText::system(std::string_view text) {
  if (!has_lead_ && !has_turn_ && !has_user_) {
    lead_ += (lead_.empty() ? "" : "\n\n") + std::string(text);
    return;
  }
  end_turn();
  add(message("system", text));
}

void ChatText::user(std::string_view text) {
  if (has_turn_) end_turn();
  user_ += (std::exchange(has_user_, true) ? "\n\n" : "") + std::string(text);
}

void ChatText::tool_result(std::string_view id, std::string_view text) {
  end_turn();
  JsonObjectText json;
  json.add_text("role", "tool");
  json.add_text("tool_call_id", id);
  json.add_text("content", text);
  add(std::move(json).finish());
}

void ChatText::reasoning(std::string_view text) {
  if (has_user_ || !said_.empty() || !calls_.empty()) end_turn();
  has_turn_ = true;
  reasoning_ += text;
}

void ChatText::assistant(std::string_view text) {
  if (has_user_ || !calls_.empty()) end_turn();
  has_turn_ = true;
  said_ += (said_.empty() ? "" : "\n\n") + std::string(text);
}

void ChatText::call(std::string_view id, std::string_view name, std::string_view arguments) {
  has_turn_ = true;
  JsonObjectText function, json;
  function.add_text("name", name);
  function.add_text("arguments", arguments);
  json.add_text("id", id);
  json.add_text("type", "function");
  json.add_raw("function", std::move(function).finish());
  calls_ += (calls_.empty() ? "" : ",") + std::move(json).finish();
}

std::string ChatText::finish() && {
  end_turn();
  if (!has_lead_ && !lead_.empty()) add(message("system", std::exchange(lead_, {})));
  return "[" + std::move(messages_) + "]";
}

}  // namespace leq
