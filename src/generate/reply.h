// One reply while it is written, token by token, as a value that knows no device, no KV cache and
// no clock: how its next token is drawn, what a drawn token adds to the text, and what ends it.
// Who has the logits drives it, one reply at a time (generate/generator.cpp) or many:
//
//   while (reply.stopped() == StopReason::none) {
//     ... feed what the KV cache lacks of reply.context() ...
//     ... draw by reply.request() ...
//     show(reply.take(drawn));
//   }
//   show(reply.finish());
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "generate/sampler.h"
#include "generate/stop.h"
#include "tokenizer/stream_decoder.h"

namespace leq {

struct ReplyRules {
  StopRules stop;
  std::int64_t context = 0;  // positions that prompt and reply may take together
  // Which reply it is, and which of several to one request: its draws depend on both (sampler.h).
  std::uint32_t number = 0;
  std::uint32_t choice = 0;
  bool at_text_start = false;  // drop the one space that some tokenizers put before a text
};

class Reply {
 public:
  // `tokenizer` must outlive the reply. The reply draws by a copy of `sampler`.
  Reply(const Tokenizer& tokenizer, std::span<const Token> prompt, const Sampler& sampler,
        ReplyRules rules);

  // How to draw the next token. Valid until the next call, and as long as the reply stays where it
  // is. (Mirostat looks at how probable a token was: there the draws come one after the other.)
  SampleRequest request() { return request({}); }
  // The same for the token after context() and `drafts`.
  SampleRequest request(std::span<const Token> drafts);

  // The next token, as it was drawn. Returns the text that is certain now: often none, never half
  // a character. Where the reply goes on, the token is the last of context(), which is to be fed
  // before the next draw. Several tokens may be taken one after the other, as long as it goes on.
  std::string take(Token drawn);

  // Nothing could be drawn; `error` says why.
  void fail(std::string error);
  // Somebody wants it to end here, which counts more than a limit that it has just reached.
  void interrupt();

  // The rest of the text, once the reply has stopped: what was held back. It may complete a stop
  // string.
  std::string finish();

  StopReason stopped() const { return stopped_; }
  const std::string& error() const { return error_; }  // where it failed
  std::string_view stop_string() const { return finder_.found_string(); }
  // Prompt and reply. An end token is no part of it.
  std::span<const Token> context() const { return context_; }
  std::span<const Token> tokens() const { return context().subspan(prompt_tokens_); }
  const std::string& text() const { return text_; }  // all that was returned
  std::int64_t tokens_left() const;                  // that it may still take

 private:
  StopReason reached_limit() const;

  std::size_t prompt_tokens_;
  std::vector<Token> context_;
  Sampler sampler_;
  ReplyRules rules_;
  StreamDecoder decoder_;
  StopStringFinder finder_;
  std::string text_;
  StopReason stopped_;
  std::string error_;
};

}  // namespace leq
