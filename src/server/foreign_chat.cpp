#include "server/foreign_chat.h"

#include <array>
#include <utility>

#include "server/api_fields.h"

namespace leq {
namespace {

Json message(std::string_view role, std::string_view text) {
  return {{"role", role}, {"content", text}};
}

}  // namespace

void set_given(Json& object, std::string_view name, JsonNode value) {
  if (value && !value.is_null()) object[name] = value.value();
}

void copy_members(JsonNode body, std::span<const CopiedMember> members, Json& chat) {
  for (const CopiedMember& member : members) {
    set_given(chat, member.as, given_field(body, member.name));
  }
}

Json function_of(JsonNode tool, std::span<const CopiedMember> members) {
  Json function = Json::object();
  copy_members(tool, members, function);
  return {{"type", "function"}, {"function", std::move(function)}};
}

Json chosen_function(JsonNode choice) {
  static constexpr std::array kName = {CopiedMember{"name", "name"}};
  return function_of(choice, kName);
}

void ChatBuilder::add(Json text) {
  if (!std::exchange(has_lead_, true) && !lead_.empty()) {
    messages_.push_back(message("system", lead_));
  }
  messages_.push_back(std::move(text));
}

void ChatBuilder::end_turn() {
  if (std::exchange(has_user_, false)) add(message("user", std::exchange(user_, {})));
  if (!std::exchange(has_turn_, false)) return;
  Json turn = message("assistant", std::exchange(said_, {}));
  if (!reasoning_.empty()) turn["reasoning_content"] = std::exchange(reasoning_, {});
  if (!calls_.empty()) turn["tool_calls"] = std::exchange(calls_, Json::array());
  add(std::move(turn));
}

void ChatBuilder::system(std::string_view text) {
  if (!has_lead_ && !has_turn_ && !has_user_) {
    lead_ += (lead_.empty() ? "" : "\n\n") + std::string(text);
    return;
  }
  end_turn();
  add(message("system", text));
}

void ChatBuilder::user(std::string_view text) {
  if (has_turn_) end_turn();
  user_ += (std::exchange(has_user_, true) ? "\n\n" : "") + std::string(text);
}

void ChatBuilder::tool_result(std::string_view id, std::string_view text) {
  end_turn();
  add({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
}

void ChatBuilder::reasoning(std::string_view text) {
  if (has_user_ || !said_.empty() || !calls_.empty()) end_turn();
  has_turn_ = true;
  reasoning_ += text;
}

void ChatBuilder::assistant(std::string_view text) {
  if (has_user_ || !calls_.empty()) end_turn();
  has_turn_ = true;
  said_ += (said_.empty() ? "" : "\n\n") + std::string(text);
}

void ChatBuilder::call(std::string_view id, std::string_view name, std::string_view arguments) {
  has_turn_ = true;
  calls_.push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
}

Json ChatBuilder::finish() && {
  end_turn();
  if (!has_lead_ && !lead_.empty()) add(message("system", std::exchange(lead_, {})));
  return std::move(messages_);
}

}  // namespace leq
