// Requests to a model, and the engine that generates their replies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "chat/reply.h"
#include "engine/prefix_cache.h"
#include "engine/saved_prefix.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "model/pooling.h"
#include "model/session.h"

namespace leq {

// Log probabilities of a drawn token and of the most probable alternatives, computed from the raw
// logits before biases, penalties, temperature and truncation.
struct TokenLogprob {
  Token id = kNoToken;
  float logprob = 0;  // natural logarithm of its share of softmax(logits)
};

struct TokenLogprobs : TokenLogprob {
  std::vector<TokenLogprob> top;  // most probable tokens, best first; on ties lowest id first
};

// `logits` has V values, `id` is below V, and `top` is in [0, V].
TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top);
// Like token_logprobs, for the arguments of EngineRequest::on_logits; `logits` is [tokens][V].
std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top);

// Limit per reply and step. Each draft token needs a row of logits, which RunLimits::output_tokens
// counts in addition to the one row that every sequence needs.
inline constexpr std::int64_t kMaxDraftTokens = 16;

struct EngineOptions {
  bool reuse_prefixes = true;
  bool speculate = true;
  bool find_drafts = true;  // uses n-grams of the text
  // A small model with the same vocabulary (require_same_vocabulary) that drafts too, or the
  // model's own multi-token prediction head (make_mtp_session). The session has the limits of
  // draft_limits and must outlive the engine; no other object may use its cache.
  Session* draft = nullptr;
  std::int64_t max_draft_tokens = kMaxDraftTokens;  // limit per reply and step
  DraftPlanner plan_drafts = plan_draft_tokens;     // chooses each reply's number
  // If only one reply is generated, on a device that samples asynchronously, its next step is
  // launched before the host has the reply's last token (docs/engine.md, One step ahead).
  bool run_ahead = true;
  // A step that prefills while other requests draw tokens may take at most this many times as
  // long as the same step without prompts, times prompts_per_writer() (scheduler.h).
  double prompt_slowdown = 1.5;
  GrammarLimits grammar_limits = {};
  // Called after each step; if it throws Error, the step's results are wrong and its replies fail.
  std::function<void()> check_step = [] {};
};

struct EngineReply : FinishedReply {
  RequestId id = 0;
  std::optional<Error> error;      // set if the request failed
  double waiting_seconds = 0;      // time until it had a sequence
  double first_token_seconds = 0;  // from submission; 0: there was no token
  std::int64_t draft_tokens = 0, accepted_tokens = 0;
  std::int32_t sequence = -1;  // the sequence used last; -1: it never had one
  int evictions = 0;           // number of times that its pages were evicted and recomputed
};

// A known reply, for measurements. The model computes and samples as usual, but each drawn token is
// replaced by the next of these tokens until none is left.
struct Replay {
  std::vector<Token> tokens;
  // The draft model's tokens are replaced by right or wrong tokens so that this share is right.
  double draft_share = 0;
};

// Receives the number of prompt tokens computed so far and of all that were not in the prefix
// cache.
using PromptSink = std::function<void(std::int64_t fed, std::int64_t all)>;

struct EngineRequest {
  std::vector<Token> prompt;  // everything before the reply, from the text's start
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // ids never drawn, beside those that stand for no text
  StopRules stop = {};
  std::uint32_t reply = 0;   // number of the reply and, if a request has
  std::uint32_t choice = 0;  // several replies, its index: both affect the random draws
  bool at_text_start = false;
  // Set if the reply is one part of a longer one: number of the prompt's last tokens that are its
  // earlier parts. Text withheld where the context is full is then EngineReply::rest, because a
  // next part may complete it.
  std::optional<std::int64_t> begun = {};
  // Constrains the reply; null allows any text. If the grammar allows no further token, the reply
  // ends as with an end token.
  std::shared_ptr<const Grammar> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens whose text is shown (tool_calls.h)
  std::shared_ptr<const ReasoningBudget> reasoning = nullptr;  // limit on reasoning (chat/reply.h)
  int priority = 0;                                            // higher priorities are served first
  std::optional<double> seconds = {};                          // time limit after submission
  Replay replay = {};
  // The probable text of the reply. Its tokens are used as draft tokens before all other drafts, as
  // many per step as fit. Like all draft tokens they do not change the reply.
  std::vector<Token> expected = {};
  // None of the callbacks may throw: the step would end before the other requests have its results.
  // Called when the request gets a sequence, and after each step that computed some of its prompt.
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};
  TextSink on_text = [](std::string_view) {};
  // Receives the tokens that a step added to the reply, before their text.
  std::function<void(std::span<const Token>)> on_tokens = [](std::span<const Token>) {};
  // If set, receives the same tokens and the raw logits [tokens][V] from which they were drawn,
  // before sampling settings are applied (token_logprobs, receipt.h). Called before on_tokens.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  std::function<void(const EngineReply&)> on_end = [](const EngineReply&) {};
};

// The caller sets the first members and reads `values` or `logprobs`; the embedder uses the rest.
struct EmbeddedText {
  std::vector<Token> tokens;
  Pooling pooling = Pooling::mean;
  // With Pooling::rank, `values` are the logits of these tokens after the text.
  std::vector<Token> answers = {};
  // If set, log probabilities of the tokens are computed, each with `*top` alternatives.
  std::optional<int> top = {};
  std::vector<float> values = {};            // [W]; [tokens, W] with Pooling::none
  std::vector<TokenLogprobs> logprobs = {};  // [tokens - 1] for the tokens after the first
  std::vector<double> sums = {};
  std::size_t fed = 0;
  std::int32_t sequence = -1;  // -1: not assigned yet, or released
  std::uint64_t id = 0;

  bool done() const { return !tokens.empty() && sequence < 0 && fed == tokens.size(); }
};

// Embeds a text, whose normed last hidden states are pooled to one vector, or computes the
// probabilities of its tokens or of an answer. It prefills the text on an idle sequence, one chunk
// per call.
class Embedder {
 public:
  // The three referenced objects must outlive the embedder.
  Embedder(Session& session, PrefixCache& prefixes, SequencePool& sequences);

  // Prefills one chunk. The text keeps its sequence until it is done or leaves. If too few pages
  // are free, the call does nothing while `has_running`, because replies will free pages, or while
  // an older text is being prefilled. The oldest text evicts younger ones.
  void advance(EmbeddedText& text, bool has_running);
  // Releases the sequence of a text that is not continued, if it has one.
  void leave(EmbeddedText& text);
  // Evicts all texts that are being prefilled, which frees their pages; each text starts again with
  // its next chunk. Returns false if there is none.
  bool drop_all();

 private:
  void begin(EmbeddedText& text);
  bool has_sequence(const EmbeddedText& text) const;
  bool follows_another(const EmbeddedText& text) const;
  void evict(std::int32_t sequence);
  void prefill_chunk(EmbeddedText& text, bool has_running);
  void add_rows(EmbeddedText& text, std::span<const Token> part);
  void add_hidden(EmbeddedText& text);
  void project(std::vector<float>& embedding) const;
  void add_answers(EmbeddedText& text);
  void add_logprobs(EmbeddedText& text, std::span<const Token> part);

  Session& session_;
  PrefixCache& prefixes_;
  SequencePool& sequences_;
  // By sequence: id of the text that uses it, or 0. An evicted text keeps its id, thus its age.
  std::vector<std::uint64_t> texts_;
  std::uint64_t last_text_ = 0;
  Batch batch_;
};

struct EngineCounts {
  std::int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  std::int64_t draft_tokens = 0, accepted_tokens = 0, evictions = 0;
  std::int64_t drafted_tokens = 0, right_drafts = 0;  // draft tokens made by a draft model
  std::int64_t steps_ahead = 0;                       // steps launched before the host had a token
};

// Generates many replies at once on one session: continuous batching, chunked prefill between the
// tokens of other replies, prefix reuse, and speculative decoding. These affect only the speed: a
// reply is a pure function of the file, the KV types, its tokens, its settings and its seed,
// whatever else the batch holds (docs/engine.md).
//
//   Engine engine(session, tokenizer, {});
//   engine.submit({.prompt = tokens, .on_end = [](const EngineReply& reply) { ... }});
//   while (engine.step()) {}
class Engine {
 public:
  // `session` and `tokenizer` must outlive the engine, and no other object may use the session's
  // cache. If the model has act online, speculation and prefix reuse are off, because the scales of
  // such a model depend on earlier steps.
  Engine(Session& session, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();

  // Number of positions that a prompt and its reply may take together.
  std::int64_t context() const { return session_.transformer().limits().context; }
  // The context that the model can have.
  std::int64_t longest_context() const {
    return leq::longest_context(session_.transformer().config());
  }
  // Number of pages of the KV cache, which all requests share.
  std::int64_t pages() const { return session_.cache().page_count(); }

  // Throws Error if the model's tokens cannot write any text of the grammar. Accepts null.
  void check_grammar(const std::shared_ptr<const Grammar>& grammar) {
    (void)matcher_of(grammar, {});
  }
  // Queues a request. Throws Error as check_grammar does, if the prompt is empty, holds an id
  // outside the vocabulary or fills the context, and if a setting is out of range.
  RequestId submit(EngineRequest request);
  // Ends the reply as interrupted before its next token. No effect if the reply has ended.
  void cancel(RequestId id);

  // Runs one step over a batch; returns false if there is nothing to do. Calls the callbacks of the
  // requests, which may submit and cancel requests. A device error that was not caused by a single
  // request ends all requests of the step.
  bool step();

  // Copies keys and values of the longest cached prefix of `tokens`, and the recurrent states that
  // are kept inside it, for load_prefix of another engine of the same owner (PrefixOwner). After a
  // request has ended, this is all but the last token of prompt and reply. Throws Error if all
  // sequences are in use or the device fails.
  SavedPrefix save_prefix(std::span<const Token> tokens);
  // False with act online and without EngineOptions::reuse_prefixes: nothing is saved or loaded.
  bool reuses_prefixes() const { return options_.reuse_prefixes; }
  // Adds the pages to the prefix cache, which changes only the speed of later requests. Returns
  // false if the running requests leave too few pages, and unless reuses_prefixes(). Throws Error
  // naming `source` if tokens or sizes do not match this model, and as save_prefix does.
  bool load_prefix(const SavedPrefix& prefix, std::string_view source);

  // Like PrefixCache::erase: frees the pages that only this text uses; returns their tokens.
  std::int64_t erase_prompt(std::span<const Token> tokens) { return prefixes_.erase(tokens); }
  // Whether a sequence is free, which save_prefix, load_prefix and embed need.
  bool has_idle_sequence() const { return sequences_.has_idle(); }

  // The pooled normed last hidden states [W]. Running requests wait until this call returns. Throws
  // Error as submit and save_prefix do.
  std::vector<float> embed(std::span<const Token> tokens, Pooling pooling = Pooling::mean);
  // Like embed, but prefills one chunk per call until `text.done()`; step() may be called in
  // between. The text keeps a sequence until it is done or an error is thrown. Replies have
  // priority, and older texts: if no page is free, the text waits or starts again.
  void embed_chunk(EmbeddedText& text);
  // Releases the sequence of a text that is not continued.
  void drop_text(EmbeddedText& text) { embedder_.leave(text); }

  std::size_t waiting() const;
  std::size_t running() const;
  const EngineCounts& counts() const { return counts_; }
  const StepCosts& costs() const { return costs_; }
  const PrefixCache& prefixes() const { return prefixes_; }
  // The error that ended drafting by a draft model; null if there was none.
  const Error* draft_error() const {
    const DraftModel* const draft = speculator_.draft_model();
    return draft != nullptr && draft->error() ? &*draft->error() : nullptr;
  }

 private:
  // State of a request from its submission to its end.
  struct Active {
    RequestId id = 0;
    EngineRequest request;
    Reply reply;
    Drafts drafts = {};
    std::int32_t sequence = -1;   // sequence of the KV cache; -1: the request waits
    std::int64_t waited = 0;      // number of steps without a sequence
    std::int64_t kept_pages = 0;  // whole pages that the prefix cache holds
    // Ascending prompt positions whose fixed state is kept for later texts (state_marks).
    std::vector<std::int64_t> marks = {};
    std::int64_t branch = 0;  // another position to keep: where an earlier text diverged; 0: none
    bool cancelled = false;
    bool one_by_one = false;  // its steps are never launched ahead of the host
    EngineReply report;
    Stopwatch since_submission, since_prompt;

    std::int64_t known() const { return std::ssize(reply.context()); }
    bool running() const { return sequence >= 0; }
    bool is_mark(std::int64_t at) const {
      return (at == branch && at > 0) || std::ranges::binary_search(marks, at);
    }
    std::int64_t next_mark(std::int64_t fed) const {
      const std::int64_t next = leq::next_mark(marks, fed);
      return branch > fed && (next == 0 || branch < next) ? branch : next;
    }
  };
  // Next token of the only reply, sampled asynchronously on the device while the host continues.
  struct Ahead {
    RequestId id = 0;
    std::unique_ptr<PendingSample> drawing;  // null: sampling is finished
    Token drawn = 0;                         // the sampled token; negative if there is none
    const Rows* logits = nullptr;
  };

  // Null if the grammar is null; `shown` as in EngineRequest. Throws like GrammarMatcher.
  std::shared_ptr<GrammarMatcher> matcher_of(const std::shared_ptr<const Grammar>& grammar,
                                             std::span<const Token> shown);

  // Select the requests of a step (engine.cpp).
  std::vector<Job> jobs();
  Job job_of(Active& active, bool may_join);
  StepBudget step_budget(const std::vector<Job>& all) const;
  bool may_share(const Active& active, std::int64_t length) const;
  PrefixCache::Match known_prefix(const Active& active, bool use);
  void propose_drafts(std::span<Job* const> writers);
  void follow_prompts(const std::vector<Feed>& parts);
  void end_overdue();
  void admit(Active& active);
  void evict(Active& active);
  void free_pages_for(const std::vector<Feed>& parts);
  void remember(Active& active, bool last_too);
  void end(Active& active);
  void leave(Active& active);
  void load_states(const SavedPrefix& prefix, std::int32_t sequence);

  // Runs the step (engine_step.cpp).
  void run(std::vector<Feed> parts);
  void fail(const std::vector<Feed>& parts, const Error& error);
  void draw(const std::vector<Feed>& parts, const Rows& logits);
  void fetch_logits(const std::vector<Feed>& parts, const Rows& logits);
  void take(Active& active, const Feed& part, std::span<const Token> drawn, const Rows& logits,
            std::int64_t first_row, std::int64_t first_in_batch = 0);
  void count_prompt(Active& active, const Feed& part, std::int64_t fed);
  void fetch_hidden();
  void show_hidden(const Active& active, const Feed& part, std::int64_t first, std::int64_t right);
  void count_drafts(Active& active, std::int64_t checked, std::int64_t right);

  // Steps launched before the host has the token that they feed.
  bool may_run_ahead(const Active& active) const;
  bool drafts_next(Active& active);
  bool begin_ahead(const Feed& part, const Rows& logits);
  std::optional<Ahead> draw_ahead(Active& active, const Rows& logits,
                                  std::span<const Token> fed_since);
  std::optional<Ahead> begin_next(Active& active);
  void step_ahead();
  void finish_ahead();
  void drop_ahead();
  void drop_last(const Active& active);
  std::int64_t committed_length(const Active& active) const;

  Session& session_;
  const Tokenizer& tokenizer_;
  EngineOptions options_;
  SequencePool sequences_;
  PrefixCache prefixes_;
  Embedder embedder_;
  Speculator speculator_;
  StepCosts costs_;
  EngineCounts counts_;
  RequestId next_id_ = 0;
  std::map<RequestId, std::unique_ptr<Active>> active_;
  std::size_t vocabulary_;
  std::vector<Token> without_text_;  // ids that are never drawn because they stand for no text
  struct KnownGrammar {
    std::shared_ptr<const Grammar> grammar;
    std::vector<ShownToken> shown;
    std::shared_ptr<GrammarMatcher> matcher;
  };
  std::deque<KnownGrammar> grammars_;
  std::shared_ptr<const TokenTrie> trie_;  // built when the first grammar is used
  std::optional<Ahead> ahead_;
  // Buffers of the current step:
  Batch batch_;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
  std::vector<float> raw_logits_;  // [outputs][V] on the host, if a request reads them
  std::vector<float> hidden_;      // [rows][W] for the draft model
};

}  // namespace leq
