// Generates one reply at a time, for chats and programs without concurrent requests: an engine that
// holds a single request.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"
#include "chat/conversation.h"
#include "chat/tool_calls.h"
#include "engine/engine.h"

namespace leq {

struct GeneratorOptions {
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never sampled, beside the ids that stand for no text
  EngineOptions engine = {};
};

class Generator {
 public:
  // `session` and `tokenizer` must outlive the generator, and no other object may use the session's
  // cache. Throws Error if a setting is out of range.
  Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options);

  // Number of positions that a prompt and its reply may take together.
  std::int64_t context() const { return engine_.context(); }
  // The context that the model can have.
  std::int64_t longest_context() const { return engine_.longest_context(); }

  void check_prompt(std::span<const Token> prompt) const;  // calls check_prompt of chat/reply.h
  void check_grammar(const std::shared_ptr<const Grammar>& grammar) {  // as Engine::check_grammar
    engine_.check_grammar(grammar);
  }

  // Generates one reply, with the generator's sampling settings and banned tokens. The longest
  // prefix of the prompt that is in the KV cache is not computed again, which does not change the
  // reply. Any thread or signal handler may set `interrupted` at any time: the reply then stops
  // before its next token, or before the next chunk of its prompt. Throws Error as check_prompt and
  // check_grammar do, if logits are not finite, and if the device fails.
  FinishedReply generate(EngineRequest request, const std::atomic<bool>* interrupted = nullptr);

  const SamplingSettings& sampling() const { return options_.sampling; }
  // Sets the sampling settings of later replies.
  void set_sampling(const SamplingSettings& sampling);
  const EngineCounts& counts() const { return engine_.counts(); }
  // These call the functions of Engine.
  bool reuses_prefixes() const { return engine_.reuses_prefixes(); }
  SavedPrefix save_prefix(std::span<const Token> tokens) { return engine_.save_prefix(tokens); }
  bool load_prefix(const SavedPrefix& prefix, std::string_view source) {
    return engine_.load_prefix(prefix, source);
  }
  const Error* draft_error() const { return engine_.draft_error(); }

 private:
  Session& session_;
  const Tokenizer& tokenizer_;
  GeneratorOptions options_;
  Engine engine_;
};

// A conversation with a model: each turn renders the whole conversation, tokenizes it in one piece
// and lets the generator reuse the prefix that the KV cache holds.
struct ChatSessionOptions {
  ChatOptions rendering;
  StopRules stop;                                    // the template's end of reply is added
  std::shared_ptr<const Grammar> grammar = nullptr;  // constrains each reply
  // If it has channels, analysis is shown between <think> and </think>, and the conversation keeps
  // the rest. Replies of all other styles are shown and kept as they are written.
  ReplyStyle style = {};
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};  // called as EngineRequest::on_prompt
  // Called when the oldest messages are left out from here on; with their number.
  std::function<void(std::size_t)> on_left_out = [](std::size_t) {};
};

class ChatSession {
 public:
  // The four referenced objects must outlive the session.
  ChatSession(Generator& generator, const Tokenizer& tokenizer, const ChatTemplate& format,
              const ChatSessionOptions& options);

  // Runs one turn: adds the message and the reply to the conversation. If the context is full, the
  // oldest turns are left out until half of it is free, and a reply without a grammar continues. If
  // the reply cannot be written (one turn is larger than the context) or is interrupted before its
  // first token, the conversation stays as it was before the call. The text passed to `on_text`
  // begins without white space.
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
  // May be changed between turns.
  ChatSessionOptions& options() { return options_; }
  // Replaces the conversation. Throws Error if the template cannot render its messages.
  void restore(ChatState state);

 private:
  std::vector<Token> prompt_of(const std::vector<ChatMessage>& messages,
                               std::size_t left_out) const;
  std::vector<Token> shorter_prompt(const std::vector<ChatMessage>& messages, std::size_t& left_out,
                                    std::span<const Token> reply) const;
  FinishedReply write(std::vector<ChatMessage> messages, const TextSink& on_text,
                      const std::atomic<bool>& interrupted);

  Generator& generator_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& format_;
  ChatSessionOptions options_;
  ChatState state_;
};

}  // namespace leq
