// Many replies at once on one session: requests join a running batch, prompts are fed in chunks
// between the tokens of others, pages of past prompts are used again, and drafted tokens are
// checked several at a time. All of it is about time: a reply is a pure function of the file, the
// KV types, its tokens, its settings and its seed, whatever else the batch holds (docs/engine.md).
//
//   Engine engine(session, tokenizer, {});
//   engine.submit({.prompt = tokens, .on_end = [](const EngineReply& reply) { ... }});
//   while (engine.step()) {}
#pragma once

#include <cstdint>
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
#include "engine/embedder.h"
#include "engine/prefix_cache.h"
#include "engine/prompt_file.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/sequence_pool.h"
#include "engine/speculator.h"
#include "engine/step_costs.h"
#include "model/session.h"

namespace leq {

struct EngineCounts {
  std::int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  std::int64_t draft_tokens = 0, accepted_tokens = 0, evictions = 0;
  std::int64_t drafted_tokens = 0, right_drafts = 0;  // of the draft tokens, those of a draft model
  std::int64_t steps_ahead = 0;  // begun before the host had the token that they feed
};

class GrammarCache;

class Engine {
 public:
  // `session` and `tokenizer` must outlive the engine, and no one else may use the session's cache.
  // Where the model has act online, whose scales remember earlier steps, nothing is drafted or used
  // again.
  Engine(Session& session, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();

  // Positions that a prompt and its reply may take together.
  std::int64_t context() const { return session_.transformer().limits().context; }
  // Of the KV cache that all of them share.
  std::int64_t pages() const { return session_.cache().page_count(); }

  // Throws Error where no text of the grammar can be written with the model's tokens. Null is fine.
  void check_grammar(const std::shared_ptr<const Grammar>& grammar);
  // Throws Error as check_grammar does, and where the prompt is empty, holds an id that the model
  // has not, leaves no room for a reply, or settings are out of range.
  RequestId submit(EngineRequest request);
  // Ends it before its next token, as interrupted. Does nothing where it has ended.
  void cancel(RequestId id);

  // One step over a batch; false where there is nothing to do. Calls what the requests gave for
  // their texts and ends: these may submit and cancel. An error of the device that no single
  // request is to blame for ends all that took part.
  bool step();

  // Keys and values of the longest beginning of `tokens` that is kept, to be loaded by an engine of
  // the same model elsewhere: those of a request's prompt and reply after its end, but for the last
  // token, which was not fed. `owner` is for the caller to set. Throws Error where all
  // sequences are in use, and where the device fails.
  SavedPrompt save_prompt(std::span<const Token> tokens);
  // From now on requests may begin with its pages; nothing changes but their time. False where it
  // does not fit beside what is in work. Throws Error naming `source` where tokens or numbers are
  // not this model's, and as save_prompt does.
  bool load_prompt(const SavedPrompt& prompt, std::string_view source);

  // As PrefixCache::forget: what a text alone takes is free again. Returns of how many tokens.
  std::int64_t forget_prompt(std::span<const Token> tokens) { return prefixes_.forget(tokens); }
  // Whether save_prompt, load_prompt and embed find a free sequence.
  bool has_idle_sequence() const { return sequences_.has_idle(); }

  // The mean over the tokens of the normed last hidden states [W]; what is in work waits meanwhile.
  // Throws Error as submit and save_prompt do.
  std::vector<float> embed(std::span<const Token> tokens);
  // The same a chunk at a time, with steps between the calls: until `text.done()`. The text has a
  // sequence until then, or until an error is thrown. Replies go first: where pages run out it
  // waits, or begins again.
  void embed_chunk(EmbeddedText& text);

  std::size_t waiting() const;
  std::size_t running() const;
  const EngineCounts& counts() const { return counts_; }
  const StepCosts& costs() const { return costs_; }
  const PrefixCache& prefixes() const { return prefixes_; }
  // Why a draft model drafts no more, where it failed; null else.
  const Error* draft_error() const { return speculator_.draft_error(); }

 private:
  struct Active;
  // The next token of the only reply, which the device draws while the host goes on.
  struct Ahead {
    RequestId id = 0;
    std::unique_ptr<PendingSample> drawing;  // null: it has ended, with
    Token drawn = 0;                         // a token, or below 0: none
    const Rows* logits = nullptr;
  };

  // Who takes part in a step (engine.cpp).
  std::vector<Job> jobs();
  Job job_of(Active& active, bool may_join);
  StepBudget step_budget(const std::vector<Job>& all) const;
  PrefixCache::Found known_prefix(const Active& active, bool use);
  void propose_drafts(std::span<Job* const> writers);
  void follow_prompts(const std::vector<Feed>& parts);
  void end_overdue();
  void admit(Active& active);
  void evict(Active& active);
  void make_room(const std::vector<Feed>& parts);
  void remember(Active& active, bool last_too);
  void end(Active& active);
  void leave(Active& active);

  // The step itself (engine_step.cpp).
  void run(std::vector<Feed> parts);
  void fail(const std::vector<Feed>& parts, const Error& error);
  void draw(const std::vector<Feed>& parts, const Rows& logits);
  void fetch_logits(const std::vector<Feed>& parts, const Rows& logits);
  void report_logits(const Active& active, std::span<const Token> taken, std::int64_t first_row);
  void take(Active& active, const Feed& part, std::span<const Token> drawn, const Rows& logits,
            std::int64_t first_row, std::int64_t first_in_batch = 0);
  void count_prompt(Active& active, const Feed& part, std::int64_t fed);
  void fetch_hidden();
  void show_hidden(const Active& active, const Feed& part, std::int64_t first, std::int64_t right);
  void count_drafts(Active& active, std::int64_t checked, std::int64_t right);

  // A step begun before the host has its token (engine_ahead.cpp).
  bool may_run_ahead(const Active& active) const;
  bool drafts_next(Active& active);
  bool begin_ahead(const Feed& part, const Rows& logits);
  std::optional<Ahead> draw_ahead(Active& active, const Rows& logits,
                                  std::span<const Token> fed_since);
  std::optional<Ahead> begin_next(Active& active);
  void step_ahead();
  void land_ahead();
  void drop_ahead();
  void forget_last(const Active& active);
  std::int64_t settled_length(const Active& active) const;

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
  std::vector<Token> without_text_;  // ids that are never drawn
  std::unique_ptr<GrammarCache> grammars_;
  std::optional<Ahead> ahead_;
  // Of the step in work:
  Batch batch_;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
  std::vector<float> raw_logits_;  // [outputs][V] on the host, where somebody wants them
  std::vector<float> hidden_;      // [rows][W] that a draft model reads
};

}  // namespace leq
