// Writes one reply (generate/reply.h) after the other on one sequence of a session: feeds what the
// KV cache does not hold yet, draws where the logits are, and hands out text as it comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/reply.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Takes the reply's text piece by piece; a piece is never empty and never ends inside a character.
using TextSink = std::function<void(std::string_view text)>;

struct ReplyRequest {
  std::span<const Token> prompt;  // everything before the reply, from the text's start
  StopRules stop;
  std::uint32_t reply = 0;     // its number (ReplyRules)
  bool at_text_start = false;  // as in ReplyRules
  TextSink on_text = [](std::string_view) {};
  // Set by anyone at any time (a signal handler): the reply stops before its next token, or before
  // the next chunk of the prompt. Must outlive the call.
  const std::atomic<bool>* interrupted = nullptr;
};

// What became of a request.
struct FinishedReply {
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

// Throws Error where the prompt is empty, holds an id beyond `vocabulary`, or leaves no room for a
// reply in `context` positions.
void check_prompt(std::span<const Token> prompt, std::size_t vocabulary, std::int64_t context);

struct GeneratorOptions {
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never sampled, beside the ids that stand for no text
  std::int32_t sequence = 0;       // in the session's KV cache; no reply depends on it
};

class Generator {
 public:
  // `session` and `tokenizer` must outlive the generator, and nobody else may change the sequence
  // in the session's cache. Throws Error on settings out of range.
  Generator(Session& session, const Tokenizer& tokenizer, const GeneratorOptions& options);

  // Positions that a prompt and its reply may take together.
  std::int64_t context() const;

  void check_prompt(std::span<const Token> prompt) const;  // as the function above

  // Writes one reply. The longest beginning of the prompt that the KV cache holds is not fed again;
  // the reply is the same with and without it. Throws Error as check_prompt does, and where logits
  // are no numbers.
  FinishedReply generate(const ReplyRequest& request);

  const SamplingSettings& sampling() const { return sampler_.settings(); }
  // Settings for the replies to come.
  void set_sampling(const SamplingSettings& sampling);

 private:
  std::int64_t keep_prefix(std::span<const Token> prompt);
  const Rows* feed_prompt(const ReplyRequest& request, FinishedReply& finished);
  const Rows& feed(std::span<const Token> tokens);
  std::string draw(const Rows& logits, Reply& reply);
  void write(const ReplyRequest& request, const Rows* logits, Reply& reply,
             FinishedReply& finished);

  Session& session_;
  const Tokenizer& tokenizer_;
  GeneratorOptions options_;
  Sampler sampler_;          // that replies copy
  std::vector<Token> held_;  // what the KV cache holds for this sequence
};

}  // namespace leq
