// Renders a conversation as the text format that a chat model was trained on, either with the
// model's own Jinja template or with one of those built into leq, both run by generate/jinja.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "chat/conversation.h"
#include "sampling/stop.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct NamedFormat;
struct JinjaTemplate;

// A conversation as in the OpenAI API. A content that is a list of {"type": "text"} parts is
// joined; arguments of tool calls may be a string of JSON or an object.
struct ChatRequest {
  JsonNode messages;        // an array of {"role", "content", "tool_calls", ...}
  JsonNode tools = {};      // an array of {"type": "function", "function": {...}}, or nothing
  JsonNode variables = {};  // an object of further template variables, or nothing
};

struct ChatOptions {
  std::string bos;  // the texts of the model's BOS and EOS tokens; see chat_options
  std::string eos;
  bool ask_for_reply = true;    // append the prefix of the model's next reply
  bool enable_thinking = true;  // false: disable thinking in formats that support it
  std::string date;  // "26 Jul 2024", for templates with a date; empty: the template's or today
  std::optional<std::tm> now = {};  // the templates' current time; nullopt: local time
};

// Options whose bos and eos are the texts of the tokenizer's BOS and EOS.
ChatOptions chat_options(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  // Compiles a model's own template. Throws Error naming `source`, the line, and the syntax error
  // or the unsupported construct.
  static ChatTemplate of_model(std::string_view jinja, std::string_view source);
  // A built-in format; throws Error listing the known names if `name` is unknown.
  static ChatTemplate by_name(std::string_view name);
  // All names, in the order of docs/chat-templates.md.
  static std::vector<std::string_view> names();

  std::string_view name() const;  // "the model's own" for a Jinja template

  // Whether the template itself has this role, judging by a quoted text of it.
  bool names_role(std::string_view role) const;

  // Renders the whole conversation. Special tokens may be recognized only in the template's own
  // parts. Throws Error if the conversation is empty or the template refuses it.
  std::vector<TextPart> render(std::span<const ChatMessage> messages,
                               const ChatOptions& options) const;
  // Renders a request with tools and other variables of the template. Also throws Error if a named
  // format is given tools.
  std::vector<TextPart> render(const ChatRequest& request, const ChatOptions& options) const;

  // Adds the end of a reply to `rules`: the special token that the template or the named format
  // writes after a reply, or a stop string if the tokenizer has no such token.
  void add_stops(const Tokenizer& tokenizer, StopRules& rules) const;

 private:
  ChatTemplate() = default;

  const NamedFormat* format_ = nullptr;  // null: the model's own template
  std::shared_ptr<const JinjaTemplate> jinja_;
};

// Removes what the template wrote after the last message's content, so that the reply continues it.
// Returns false if the parts do not end with that content, which some templates drop or change.
bool reopen_last_message(std::vector<TextPart>& parts, JsonNode messages);

// Concatenates the parts, for human readers.
std::string joined(std::span<const TextPart> parts);

}  // namespace leq
