// One reply while it is generated: how the next token is sampled, what a token adds to the text,
// and when the reply ends. It is independent of devices, the KV cache and time; the owner of the
// logits drives it, as src/engine does with many replies at once:
//
//   while (reply.stopped() == StopReason::none) {
//     ... feed what the KV cache lacks of reply.context() ...
//     ... draw by reply.request() ...
//     show(reply.take(drawn));
//   }
//   show(reply.finish());
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/grammar/matcher.h"
#include "generate/sampler.h"
#include "generate/stop.h"
#include "generate/thoughts.h"
#include "tokenizer/stream_decoder.h"

namespace leq {

// Throws Error where the prompt is empty, holds an id beyond `vocabulary`, or leaves no room for a
// reply in `context` positions.
void check_prompt(std::span<const Token> prompt, std::size_t vocabulary, std::int64_t context);

// Takes the reply's text piece by piece; a piece is never empty and never ends inside a character.
using TextSink = std::function<void(std::string_view text)>;

struct ReplyRules {
  StopRules stop;
  std::int64_t context = 0;  // positions that prompt and reply may take together
  // Which reply it is, and which of several to one request: its draws depend on both (sampler.h).
  std::uint32_t number = 0;
  std::uint32_t choice = 0;
  bool at_text_start = false;  // drop the one space that some tokenizers put before a text
  // What the reply may be; null: anything. One thread uses a matcher at a time.
  std::shared_ptr<GrammarMatcher> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens whose texts are part of the reply's
  // How long thoughts may be; null: no limit of their own.
  std::shared_ptr<const ThoughtBudget> thoughts = nullptr;
};

// The result of a request.
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

class Reply {
 public:
  // `tokenizer` must outlive the reply. The reply draws by a copy of `sampler`.
  Reply(const Tokenizer& tokenizer, std::span<const Token> prompt, const Sampler& sampler,
        ReplyRules rules);

  // How to draw the next token: under a grammar one that it allows, or an end token where a whole
  // text stands. Valid until the next call, and as long as the reply stays where it
  // is. (Mirostat looks at how probable a token was: there the draws come one after the other.)
  SampleRequest request() { return request({}); }
  // The same for the token after context() and `drafts`.
  SampleRequest request(std::span<const Token> drafts);

  // Whether a draw depends on which tokens came before it beside the logits: else request({t}) is
  // the same for all tokens t.
  bool reads_text() const {
    return rules_.grammar != nullptr || rules_.thoughts != nullptr || sampler_.reads_text();
  }

  // The next token, as it was drawn. Returns the text that is certain now: often none, never half
  // a character. Where the reply goes on, the token is the last of context(), which is to be fed
  // before the next draw. Several tokens may be taken one after the other, as long as it goes on.
  std::string take(Token drawn);

  // Nothing could be drawn; `error` says why.
  void fail(std::string error);
  // Ends the reply on request; takes precedence over a limit that it has just reached.
  void interrupt();

  // The rest of the text, once the reply has stopped: what was held back. It may complete a stop
  // string.
  std::string finish();

  // Whether this token, if it is the next, ends the reply as an end token does.
  bool ends_with(Token next) const { return rules_.stop.is_end_token(next); }

  StopReason stopped() const { return stopped_; }
  const std::string& error() const { return error_; }  // where it failed
  // Why no token could be drawn, where the grammar is the reason: none of the model's goes on with
  // it, or it is so ambiguous that it cannot say. "" otherwise.
  std::string grammar_error();
  std::string_view stop_string() const { return finder_.found_string(); }
  // Prompt and reply. An end token is no part of it.
  std::span<const Token> context() const { return context_; }
  std::span<const Token> tokens() const { return context().subspan(prompt_tokens_); }
  const std::string& text() const { return text_; }  // all that was returned
  std::int64_t tokens_left() const;                  // that it may still take

 private:
  StopReason reached_limit() const;
  std::span<const std::uint64_t> allowed(std::span<const Token> drafts);
  std::optional<Token> forced(std::span<const Token> drafts) const;
  void allow_after(GrammarState state);
  std::string decoded(Token token);
  void follow_grammar(Token drawn);

  const Tokenizer* tokenizer_;
  std::size_t prompt_tokens_;
  std::vector<Token> context_;
  Sampler sampler_;
  ReplyRules rules_;
  StreamDecoder decoder_;
  StopStringFinder finder_;
  std::string text_;
  StopReason stopped_;
  std::string error_;
  GrammarState grammar_state_ = kOutOfGrammar;  // of the reply so far
  ThoughtWatch thoughts_;
  std::vector<std::uint64_t> allowed_;  // of the last request
};

}  // namespace leq
