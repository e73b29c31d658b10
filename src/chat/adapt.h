// Rewrites a conversation so that a chat template shows all of it. What a template shows is found
// out once, by rendering short conversations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/chat_template.h"
#include "chat/tool_calls.h"

namespace leq {

// Each member: whether the template shows such messages, in full and without an error.
struct TemplateTakes {
  bool system = true;     // a system message as the first one
  bool systems = true;    // system messages anywhere
  bool developer = true;  // messages of the role "developer" anywhere
  bool repeats = true;    // several messages of one role in a row
  bool tools = true;      // descriptions of tools
  bool calls = true;      // calls of tools, and their results
  bool guided = true;     // a system message before calls
  bool says = true;       // a text beside calls
  bool splits = true;     // ... as a message of its own before them
  bool asides = true;     // a user's message after the result of a call
  bool ids = true;        // ids of calls other than nine letters and digits
  bool responses = true;  // results of calls as "tool_responses" of the message that calls
};

// `style`: how the model writes calls, as far as the template tells; if it does not, tools and
// calls are none of the template's.
TemplateTakes takes_of(const ChatTemplate& chat, const ChatOptions& options, ToolCallStyle style);

// The text of a content: of a text, of a list of parts joined with `separator`, or the JSON of
// another object. A part without text becomes words in brackets, and its type is added to `unread`.
std::string content_text(JsonNode content, std::string_view separator,
                         std::vector<std::string>& unread);

// For the client, after the name of a member.
std::string unread_note(const std::vector<std::string>& types);

struct AdaptedChat {
  std::optional<Json> messages, tools;  // nullopt: those of the request
  std::vector<std::string> notes;       // what was rewritten, for the client
  // Type of a part without text that the user has sent since the last reply: the model cannot
  // answer that message. Empty: none.
  std::string unread;
};

// `style` has calls. The messages are objects.
AdaptedChat adapt_chat(JsonNode messages, JsonNode tools, const TemplateTakes& takes,
                       ToolCallStyle style);

}  // namespace leq
