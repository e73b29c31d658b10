// From prompt tokens to a reply: feeds what the KV cache does not hold yet, samples token by token,
// turns tokens into text as they come, and stops by the rules of generate/stop.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/sampler.h"
#include "generate/stop.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Takes the reply's text piece by piece; a piece is never empty and never ends inside a character.
using TextSink = std::function<void(std::string_view text)>;

struct ReplyRequest {
  std::span<const Token> prompt;  // everything before the reply, from the text's start
  StopRules stop;
  std::uint32_t reply = 0;     // its number, which the draws depend on (sampler.h)
  bool at_text_start = false;  // drop the one space that some tokenizers put before a text
  TextSink on_text = [](std::string_view) {};
  // Set by anyone at any time (a signal handler): the reply stops before its next token, or before
  // the next chunk of the prompt. Must outlive the call.
  const std::atomic<bool>* interrupted = nullptr;
};

struct Reply {
  std::vector<Token> tokens;  // without the end token
  std::string text;           // what on_text got, in one piece
  StopReason stopped = StopReason::none;
  std::string stop_string;          // the one that was found
  std::int64_t cached_tokens = 0;   // of the prompt, found in the KV cache
  std::int64_t fed_tokens = 0;      // of the prompt, fed now
  double prompt_seconds = 0;        // of feeding them
  std::int64_t decoded_tokens = 0;  // of the reply, fed to get at the next
  double reply_seconds = 0;         // from the first sampled token on

  double prompt_tokens_per_second() const;
  double reply_tokens_per_second() const;  // 0 where no token was decoded
};

struct GeneratorOptions {
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never sampled, beside the ids that stand for no text
  std::int32_t sequence = 0;       // in the session's KV cache
};

class Generator {
 public:
  // `session` and `tokenizer` must outlive the generator, and nobody else may change the sequence
  // in the session's cache. Throws Error on settings out of range.
  Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options);

  // Positions that a prompt and its reply may take together.
  std::int64_t context() const;

  // Throws Error where the prompt is empty, holds an id that the model has not, or leaves no room
  // for a reply.
  void check_prompt(std::span<const Token> prompt) const;

  // Writes one reply. The longest beginning of the prompt that the KV cache holds is not fed again;
  // the reply is the same with and without it. Throws Error as check_prompt does.
  Reply generate(const ReplyRequest& request);

  const SamplingSettings& sampling() const { return sampler_.settings(); }
  // Settings for the replies to come.
  void set_sampling(const SamplingSettings& sampling);

 private:
  std::int64_t keep_prefix(std::span<const Token> prompt);
  const Rows* feed_prompt(const ReplyRequest& request, Reply& reply);
  Token draw(const Rows& logits, std::span<const Token> context, const SamplePoint& point);
  void write(const ReplyRequest& request, const Rows* logits, Reply& reply);

  Session& session_;
  const Tokenizer& tokenizer_;
  GeneratorOptions options_;
  Sampler sampler_;
  std::vector<Token> held_;  // what the KV cache holds for this sequence
};

}  // namespace leq
