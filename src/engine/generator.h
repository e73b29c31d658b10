// One reply after the other, for chats and programs that write one at a time: an engine of which
// no other request is running.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace leq {

struct ReplyRequest {
  std::span<const Token> prompt;  // everything before the reply, from the text's start
  StopRules stop;
  std::uint32_t reply = 0;                                   // its number (ReplyRules)
  bool at_text_start = false;                                // as in ReplyRules
  std::shared_ptr<const Grammar> grammar = nullptr;          // as in EngineRequest
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};  // as that of EngineRequest
  TextSink on_text = [](std::string_view) {};
  // As that of EngineRequest.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  // Set by anyone at any time (a signal handler): the reply stops before its next token, or before
  // the next chunk of the prompt. Must outlive the call.
  const std::atomic<bool>* interrupted = nullptr;
};

struct GeneratorOptions {
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never sampled, beside the ids that stand for no text
  EngineOptions engine = {};
};

class Generator {
 public:
  // `session` and `tokenizer` must outlive the generator, and no other object may use the session's
  // cache. Throws Error on settings out of range.
  Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options);

  // Positions that a prompt and its reply may take together.
  std::int64_t context() const { return engine_.context(); }

  void check_prompt(std::span<const Token> prompt) const;  // as that of generate/reply.h
  void check_grammar(const std::shared_ptr<const Grammar>& grammar) {  // as that of Engine
    engine_.check_grammar(grammar);
  }

  // Writes one reply. The longest beginning of the prompt that the KV cache holds is not fed again;
  // the reply is the same with and without it. Throws Error as check_prompt and check_grammar do,
  // where logits are no numbers, and where the device fails.
  FinishedReply generate(const ReplyRequest& request);

  const SamplingSettings& sampling() const { return options_.sampling; }
  // Settings for the replies to come.
  void set_sampling(const SamplingSettings& sampling);
  const EngineCounts& counts() const { return engine_.counts(); }
  // As those of Engine.
  SavedPrompt save_prompt(std::span<const Token> tokens) { return engine_.save_prompt(tokens); }
  bool load_prompt(const SavedPrompt& prompt, std::string_view source) {
    return engine_.load_prompt(prompt, source);
  }
  const Error* draft_error() const { return engine_.draft_error(); }

 private:
  Session& session_;
  const Tokenizer& tokenizer_;
  GeneratorOptions options_;
  Engine engine_;
};

}  // namespace leq
