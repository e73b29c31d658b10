// A conversation with a model: each turn renders the whole conversation, tokenizes it in one piece
// and lets the generator reuse the prefix that the KV cache holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generator.h"
#include "generate/chat_file.h"
#include "generate/chat_template.h"

namespace leq {

struct ChatSessionOptions {
  ChatOptions rendering;
  StopRules stop;                                    // the template's end-of-reply rule is added
  std::shared_ptr<const Grammar> grammar = nullptr;  // constrains each reply
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};  // as that of EngineRequest
};

class ChatSession {
 public:
  // All four must outlive the session.
  ChatSession(Generator& generator, const Tokenizer& tokenizer, const ChatTemplate& format,
              const ChatSessionOptions& options);

  // One turn: adds the message and the reply to it. Where the reply cannot be written (the context
  // is too small), or is interrupted before its first token, the conversation is as it was before.
  // The text handed to `on_text` begins without white space.
  FinishedReply say(std::string_view message, const TextSink& on_text,
                    const std::atomic<bool>& interrupted);
  // Writes the last reply again, with its own random numbers. Throws Error where there is none.
  FinishedReply regenerate(const TextSink& on_text, const std::atomic<bool>& interrupted);

  // Forgets the messages and counts replies from 0 again; the system prompt stays.
  void reset();
  // Changes the system prompt of the conversation, empty = none. Throws Error where the template
  // knows no system prompts.
  void set_system(std::string_view text);
  std::string_view system() const;  // empty if none

  const ChatState& state() const { return state_; }
  // Throws Error where the template refuses these messages.
  void restore(ChatState state);

 private:
  std::vector<Token> prompt_for(std::span<const ChatMessage> messages) const;
  FinishedReply write(std::vector<ChatMessage> messages, const TextSink& on_text,
                      const std::atomic<bool>& interrupted);

  Generator& generator_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& format_;
  ChatSessionOptions options_;
  ChatState state_;
};

}  // namespace leq
