// Converts requests of other chat APIs to bodies of /v1/chat/completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

struct ForeignChat {
  Json body;
  std::vector<std::string> notes;  // members that were ignored
};

// OpenAI's /v1/responses, stateless: requests that refer to earlier responses are rejected. Throws
// Error naming the member at fault.
ForeignChat chat_of_responses(JsonNode body);
// Anthropic's /v1/messages.
ForeignChat chat_of_messages(JsonNode body);

// The name of a member in the foreign request, and its name in a chat request.
struct CopiedMember {
  std::string_view name, as;
};
// Sets a member unless `value` is null or nothing.
void set_given(Json& object, std::string_view name, JsonNode value);
// Copies each of the members that is present.
void copy_members(JsonNode body, std::span<const CopiedMember> members, Json& chat);
// Makes {"type": "function", "function": {...}} from the given members of a tool or tool choice.
Json function_of(JsonNode tool, std::span<const CopiedMember> members);
// Makes {"type": "function", "function": {"name": ...}} from a choice that names a function.
Json chosen_function(JsonNode choice);

// Builds a conversation. Adjacent reasoning, texts and calls of the assistant are merged into one
// message, as are adjacent texts of the user, and the system texts at the beginning: many templates
// reject two successive messages of one role.
class ChatBuilder {
 public:
  void system(std::string_view text);
  void user(std::string_view text);
  void tool_result(std::string_view id, std::string_view text);
  void reasoning(std::string_view text);
  void assistant(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  bool empty() const { return messages_.empty() && lead_.empty() && !has_turn_ && !has_user_; }
  Json finish() &&;

 private:
  void end_turn();
  void add(Json message);
  Json messages_ = Json::array();
  std::string lead_;  // system text before all messages
  bool has_lead_ = false, has_turn_ = false, has_user_ = false;
  std::string reasoning_, said_, user_;
  Json calls_ = Json::array();
};

}  // namespace leq
