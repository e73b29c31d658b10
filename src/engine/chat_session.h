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
#include "generate/chat_template.h"
#include "generate/conversation.h"

namespace leq {

struct ChatSessionOptions {
  ChatOptions rendering;
  StopRules stop;                                            // the template's end of reply is added
  std::shared_ptr<const Grammar> grammar = nullptr;          // constrains each reply
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};  // called as EngineRequest::on_prompt
};

class ChatSession {
 public:
  // The four referenced objects must outlive the session.
  ChatSession(Generator& generator, const Tokenizer& tokenizer, const ChatTemplate& format,
              const ChatSessionOptions& options);

  // Runs one turn: adds the message and the reply to the conversation. If the reply cannot be
  // written (the context is too small) or is interrupted before its first token, the conversation
  // stays as it was before the call. The text passed to `on_text` begins without white space.
  FinishedReply say(std::string_view message, const TextSink& on_text,
                    const std::atomic<bool>& interrupted);
  // Generates the last reply again with new random numbers. Throws Error if there is no reply yet.
  FinishedReply regenerate(const TextSink& on_text, const std::atomic<bool>& interrupted);

  // Removes all messages and restarts the count of replies at 0; keeps the system prompt.
  void reset();
  // Changes the system prompt of the conversation; an empty text removes it. Throws Error if the
  // template does not support system prompts.
  void set_system(std::string_view text);
  std::string_view system() const;  // empty if none

  const ChatState& state() const { return state_; }
  // Replaces the conversation. Throws Error if the template cannot render its messages.
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
