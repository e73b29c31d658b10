// A conversation as the text a chat model was trained on: by the model's own Jinja template, which
// is run (generate/jinja), or by a format that leq knows by its name.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "generate/stop.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct ChatFormat;
class JinjaTemplate;

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// A conversation as clients of the OpenAI API write it. Parts of a message that are lists of
// {"type": "text"} are joined; arguments of tool calls may be JSON in a text, or an object.
struct ChatRequest {
  JsonNode messages;        // an array of {"role", "content", "tool_calls", ...}
  JsonNode tools = {};      // an array of {"type": "function", "function": {...}}, or nothing
  JsonNode variables = {};  // an object of what else a template may ask for, or nothing
};

struct ChatOptions {
  std::string bos;  // texts of the model's tokens; see chat_options
  std::string eos;
  bool ask_for_reply = true;    // ends where the model's next reply begins
  bool enable_thinking = true;  // false: formats that can think are told not to
  std::string date;  // "26 Jul 2024", for templates with a date; empty: the template's or today
  std::optional<std::tm> now = {};  // what templates take for today; nullopt: local time
};

// Options with the texts of the tokenizer's own BOS and EOS.
ChatOptions chat_options(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  // A model's own template. Throws Error naming `source`, the line and what is no Jinja there, or a
  // construct that is not supported.
  static ChatTemplate of_model(std::string_view jinja, std::string_view source);
  // A format by its name; throws Error with the names that exist.
  static ChatTemplate by_name(std::string_view name);
  // All names, in the order of docs/chat-templates.md.
  static std::vector<std::string_view> names();

  std::string_view name() const;  // "the model's own" where it has none

  // The whole conversation. Special tokens are to be recognised in the template's own parts only.
  // Throws Error on an empty conversation, and on what the template refuses.
  std::vector<TextPart> render(std::span<const ChatMessage> messages,
                               const ChatOptions& options) const;
  // The same with tools and whatever else the template knows. Throws Error too where a named format
  // is asked for tools.
  std::vector<TextPart> render(const ChatRequest& request, const ChatOptions& options) const;

  // Adds the end of a reply to `rules`: the special token that the template or the named format
  // writes after a reply, as a stop string where the tokenizer has no such token.
  void add_stops(const Tokenizer& tokenizer, StopRules& rules) const;

 private:
  ChatTemplate() = default;

  const ChatFormat* format_ = nullptr;
  std::shared_ptr<const JinjaTemplate> jinja_;  // one of both
};

// Removes what the template wrote after the text of the last message, so that the reply continues
// that text. false where the parts do not end with it: some templates drop or change it.
bool reopen_last_message(std::vector<TextPart>& parts, JsonNode messages);

// The parts as one text, to be read by people.
std::string joined(std::span<const TextPart> parts);

}  // namespace leq
