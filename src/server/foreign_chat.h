// Requests of other chat APIs as bodies of /v1/chat/completions, which all that follows reads.
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
  std::vector<std::string> notes;  // what was left out
};

// Of /v1/responses, as OpenAI has it: stateless, so that requests which refer to earlier responses
// are refused. Throws Error naming the member at fault.
ForeignChat chat_of_responses(JsonNode body);
// Of /v1/messages, as Anthropic has it.
ForeignChat chat_of_messages(JsonNode body);

// A member of a request, and its name in a chat's.
struct CopiedMember {
  std::string_view name, as;
};
// Those that are given.
void copy_members(JsonNode body, std::span<const CopiedMember> members, JsonObjectText& chat);
// {"type": "function", "function": {...}} with some of a tool's or a choice's members.
std::string function_of(JsonNode tool, std::span<const CopiedMember> members);
// {"type": "function", "function": {"name": ...}}, which a choice of tools says.
std::string chosen_function(JsonNode choice);

// Puts a conversation together: what the assistant thinks, says and calls in a row is one message,
// so is what the user says in a row, and what the system says before all others. Many templates
// refuse two messages of one role.
class ChatText {
 public:
  void system(std::string_view text);
  void user(std::string_view text);
  void tool_result(std::string_view id, std::string_view text);
  void thoughts(std::string_view text);
  void assistant(std::string_view text);
  void call(std::string_view id, std::string_view name, std::string_view arguments);
  bool empty() const { return messages_.empty() && lead_.empty() && !has_turn_ && !has_user_; }
  std::string finish() &&;

 private:
  void end_turn();
  void add(std::string_view message);
  std::string messages_;
  std::string lead_;  // of the system, before all others
  bool has_lead_ = false, has_turn_ = false, has_user_ = false;
  std::string thoughts_, said_, calls_, user_;
};

}  // namespace leq
