// A conversation as the text a chat model was trained on. The model's own Jinja template is
// recognised, not run: it is one of the formats leq knows, or it is refused by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/stop.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct ChatFormat;

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatOptions {
  std::string bos;  // texts of the model's tokens; see chat_options
  std::string eos;
  bool ask_for_reply = true;    // ends where the model's next reply begins
  bool enable_thinking = true;  // false: formats that can think are told not to
  std::string date;  // "26 Jul 2024", for formats with a date; empty: the format's or today
};

// Options with the texts of the tokenizer's own BOS and EOS.
ChatOptions chat_options(const Tokenizer& tokenizer);

class ChatTemplate {
 public:
  // The format of a model's own template. Throws Error naming `source` and what is not known in it.
  static ChatTemplate recognise(std::string_view jinja, std::string_view source);
  // A format by its name; throws Error with the names that exist.
  static ChatTemplate by_name(std::string_view name);
  // All names, in the order of docs/chat-templates.md.
  static std::vector<std::string_view> names();

  std::string_view name() const;
  // The system prompt that a conversation without one gets; empty if none.
  const std::string& default_system() const { return default_system_; }

  // The whole conversation. Special tokens are to be recognised in the template's own parts only.
  // Throws Error on an empty conversation, an unknown role, and an order the template refuses.
  std::vector<TextPart> render(std::span<const ChatMessage> messages,
                               const ChatOptions& options) const;

  // Adds what ends a reply: the format's end token, or its text where the tokenizer has no such
  // token.
  void add_stops(const Tokenizer& tokenizer, StopRules& rules) const;

 private:
  explicit ChatTemplate(const ChatFormat& format);

  const ChatFormat* format_;
  std::string default_system_;
};

// The parts as one text, to be read by people.
std::string joined(std::span<const TextPart> parts);

}  // namespace leq
