// One reply while it is generated: how the next token is sampled, which text a token adds, and when
// the reply ends. It is independent of devices, the KV cache and time; the owner of the logits
// drives it, as src/engine does with many replies at once:
//
// while (reply.stopped() == StopReason::none) {
// ... feed the tokens of reply.context() that the KV cache lacks ...
// ... draw a token with reply.request() ...
// show(reply.take(drawn));
// }
// show(reply.finish());
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls.h"
#include "grammar/matcher.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "tokenizer/tokenizer.h"

namespace leq {

// Reasoning before an answer: when a grammar begins to apply, and the reasoning's token limit.
enum class ReasoningState : std::uint8_t {
  none,   // the style has no reasoning, or the prompt has ended it
  may,    // the reply may begin with reasoning
  begun,  // the prompt has begun the reasoning
};
ReasoningState reasoning_after(const ReplyStyle& style, std::string_view prompt);

// The token limit of reasoning, after which the reply is forced to continue with `closing`.
struct ReasoningBudget {
  std::string begin, end;               // the marks around reasoning
  std::vector<std::string> calls = {};  // texts that also end it (marks_in_reasoning)
  bool begun = false;                   // whether the prompt has begun the reasoning
  std::int64_t tokens = 0;
  std::vector<Token> closing;
  std::size_t vocabulary = 0;  // number of logits
};

// Sets the marks, `closing` and `begun`; null if the reply has no reasoning. `words` are written
// before the mark that ends the reasoning.
std::shared_ptr<ReasoningBudget> reasoning_budget(const ReplyStyle& style, std::string_view prompt,
                                                  const Tokenizer& tokenizer,
                                                  std::string_view words);

// Tracks how much of a reply's reasoning is written. Copies are used to look ahead over drafts.
class ReasoningWatch {
 public:
  ReasoningWatch() = default;
  // A null budget sets no limit.
  ReasoningWatch(std::shared_ptr<const ReasoningBudget> budget, const Tokenizer& tokenizer);

  // The token that must come next; nullopt if any token may.
  std::optional<Token> forced() const;
  void take(Token token);

 private:
  enum class Place : std::uint8_t { start, reasoning, closing, answer };
  void read(std::string_view text);

  std::shared_ptr<const ReasoningBudget> budget_;
  const Tokenizer* tokenizer_ = nullptr;
  Place place_ = Place::answer;
  std::string tail_;  // the end of the text, which may begin a mark
  std::int64_t count_ = 0;
  std::size_t said_ = 0;  // number of closing tokens written
};

// Throws Error if the prompt is empty, contains an id of `vocabulary` or more, or leaves no
// position of `context` for a reply; `longest`: the context that the model can have.
void check_prompt(std::span<const Token> prompt, std::size_t vocabulary, std::int64_t context,
                  std::int64_t longest);

// Receives the reply's text in pieces; a piece is never empty and never ends within a character.
using TextSink = std::function<void(std::string_view text)>;

struct ReplyRules {
  StopRules stop;
  std::int64_t context = 0;  // limit of positions for prompt and reply together
  // The reply's number, and its index in the request; its draws depend on both (sampler.h).
  std::uint32_t number = 0;
  std::uint32_t choice = 0;
  bool at_text_start = false;  // drop the space that some tokenizers put before a text
  // The prompt's last tokens that begin this reply; their text is not repeated, only continued.
  std::int64_t begun = 0;
  // The grammar of the reply; null: no restriction. A matcher is used by one thread at a time.
  std::shared_ptr<GrammarMatcher> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens whose texts are part of the reply's text
  // The token limit of reasoning; null: no separate limit.
  std::shared_ptr<const ReasoningBudget> reasoning = nullptr;
};

// The result of a request.
struct FinishedReply {
  std::vector<Token> tokens;  // without the end token
  std::string text;           // all text passed to on_text
  std::string rest;           // text withheld where the context is full (EngineRequest::begun)
  StopReason stopped = StopReason::none;
  std::string stop_string;          // the stop string that ended the reply
  std::int64_t cached_tokens = 0;   // prompt tokens found in the KV cache
  std::int64_t fed_tokens = 0;      // prompt tokens fed by this request
  double prompt_seconds = 0;        // time to feed the prompt tokens
  std::int64_t decoded_tokens = 0;  // reply tokens fed to sample the next one
  double reply_seconds = 0;         // from the first sampled token on

  // Adds the next part of a reply that was written in several.
  void add(const FinishedReply& next);

  double prompt_tokens_per_second() const { return rate(fed_tokens, prompt_seconds); }
  // 0 if no token was decoded.
  double reply_tokens_per_second() const { return rate(decoded_tokens, reply_seconds); }
  static double rate(std::int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

class Reply {
 public:
  // `tokenizer` must outlive the reply. The reply samples with a copy of `sampler`.
  Reply(const Tokenizer& tokenizer, std::span<const Token> prompt, const Sampler& sampler,
        ReplyRules rules);

  // The settings of the next draw: under a grammar only allowed tokens, or an end token if the text
  // is complete. Valid until the next call and only while the reply is not moved. With Mirostat,
  // draws must be made one after another, because each depends on the last token's probability.
  SampleRequest request() { return request({}); }
  // Like request(), for the token that follows context() and then `drafts`.
  SampleRequest request(std::span<const Token> drafts);

  // Whether a draw depends on earlier tokens in other ways than through the logits. If not,
  // request({t}) is the same for all tokens t.
  bool reads_text() const {
    return rules_.grammar != nullptr || rules_.reasoning != nullptr || sampler_.reads_text();
  }

  // Adds the next token that was drawn. Returns the text that is final now: often empty, never part
  // of a character. If the reply continues, the token is the last one of context() and must be fed
  // before the next draw. Several tokens may be added one after another while the reply continues.
  std::string take(Token drawn);

  // Ends the reply because no token could be drawn; `error` is the reason.
  void fail(std::string error);
  // Ends the reply on request; takes precedence over a limit reached at the same time.
  void interrupt();

  // Returns the withheld rest of the text after the reply has stopped. It may complete a stop
  // string.
  std::string finish();

  // Whether this token would end the reply as an end token.
  bool ends_with(Token next) const { return rules_.stop.is_end_token(next); }

  StopReason stopped() const { return stopped_; }
  const std::string& error() const { return error_; }  // set if the reply failed
  // The reason if the grammar prevents the next draw: no token of the model can continue its text,
  // or the grammar is too ambiguous. Otherwise "".
  std::string grammar_error();
  std::string_view stop_string() const { return finder_.found_string(); }
  // Prompt and reply, without the end token.
  std::span<const Token> context() const { return context_; }
  std::span<const Token> tokens() const { return context().subspan(prompt_tokens_); }
  const std::string& text() const { return text_; }  // all text returned so far
  std::int64_t tokens_left() const;                  // number of tokens that may still be drawn

 private:
  StopReason reached_limit() const;
  std::span<const std::uint64_t> allowed(std::span<const Token> drafts);
  std::span<const std::uint64_t> allowed_by_grammar(std::span<const Token> drafts);
  std::optional<Token> forced(std::span<const Token> drafts) const;
  void allow_after(GrammarState state);
  std::string decoded(Token token);
  void follow_grammar(Token drawn);
  void read_alone();

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
  GrammarState grammar_state_ = kOutOfGrammar;  // after the reply so far
  bool is_alone_ = false;                       // no other reply uses the matcher
  ReasoningWatch reasoning_;
  std::vector<std::uint64_t> allowed_;  // mask of the last request
};

}  // namespace leq
