// Converts requests of other chat APIs to bodies of /v1/chat/completions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "server/json_text.h"

namespace leq {

struct ForeignChat {
  JsonTree body;
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
// Copies each of the members that is present.
void copy_members(JsonNode body, std::span<const CopiedMember> members, JsonObjectText& chat);
// Makes {"type": "function", "function": {...}} from the given members of a tool or tool choice.
std::string function_of(JsonNode tool, std::span<const CopiedMember> members);
// Makes {"type": "function", "function": {"name": ...}} from a choice that names a function.
std::string chosen_function(JsonNode choice);

// Builds a conversation. Adjacent reasoning, texts and calls of the assistant are merged into one
// message, as are adjacent texts of the user, and the system texts at the beginning: many templates
// reject two successive messages of one role.
class ChatText {
 public:
  void system(std::string_view text);
  void user(std::string_view text);
  void tool_result(std::string_view id, std::string_view text);
  void reasoning(std::string_view text);
  void assistant(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  bool empty() const { return messages_.empty() && lead_.empty() && !has_turn_ && !has_user_; }
  std::string finish() &&;

 private:
  void end_turn();
  void add(std::string_view message);
  std::string messages_;
  std::string lead_;  // system text before all messages
  bool has_lead_ = false, has_turn_ = false, has_user_ = false;
  std::string reasoning_, said_, calls_, user_;
};

}  // namespace leq
