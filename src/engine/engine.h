// Many replies at once on one session: requests join a running batch, prompts are fed in chunks
// between the tokens of others, pages of past prompts are used again, and guessed tokens are
// checked several at a time. All of it is about time: a reply is a pure function of the file, the
// KV types, its tokens, its settings and its seed, whoever else is there (docs/engine.md).
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
#include "engine/draft_model.h"
#include "engine/logprobs.h"
#include "engine/prefix_cache.h"
#include "engine/prompt_file.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_costs.h"
#include "generate/grammar/grammar.h"
#include "generate/reply.h"
#include "model/session.h"

namespace leq {

// Of one reply in one step. Each takes a row of logits, RunLimits::output_tokens beside the one
// that every sequence needs.
inline constexpr std::int64_t kMostGuesses = 16;

struct EngineOptions {
  bool reuse_prefixes = true;
  bool speculate = true;
  // A small model with the same vocabulary (require_same_vocabulary), which guesses too. Its limits
  // are those of draft_limits; it must outlive the engine, and nobody else may use its cache.
  Session* draft = nullptr;
  std::int64_t most_guesses = kMostGuesses;  // of one reply in one step, at most so many
  // Not 0: so many guesses are made wherever they can be, by the draft model where there is one,
  // whether they pay or not. For measuring what they cost.
  std::int64_t fixed_guesses = 0;
  // A reply that is written alone, on a device that draws behind the host's back: its next step is
  // begun before the host has its last token (docs/engine.md, One step ahead).
  bool run_ahead = true;
  // A step in which others wait for their next token takes at most so many times as long for the
  // sake of prompts; times crowd_of_readers.
  double prompt_patience = 1.5;
};

struct EngineReply : FinishedReply {
  RequestId id = 0;
  std::optional<Error> error;      // where it failed
  double waiting_seconds = 0;      // before it had a sequence
  double first_token_seconds = 0;  // from its submission; 0 where there was none
  std::int64_t guessed_tokens = 0, right_guesses = 0;
  std::int32_t sequence = -1;  // where it was written at last; -1: it never came to it
  int evictions = 0;           // times that its pages went to others and were made again
};

// For measuring: a reply that is known before. The model is fed and draws as ever, and what it
// draws is taken for these tokens, for as long as there are any.
struct Replay {
  std::vector<Token> tokens;
  // What is taken for the draft model's guesses: this share of them is right.
  double draft_share = 0;
};

// Is told how many of a prompt's tokens are fed, of how many that no earlier text had in the cache.
using PromptSink = std::function<void(std::int64_t fed, std::int64_t all)>;

struct EngineRequest {
  std::vector<Token> prompt;  // everything before the reply, from the text's start
  SamplingSettings sampling = {};
  std::vector<Token> banned = {};  // never drawn, beside the ids that stand for no text
  StopRules stop = {};
  std::uint32_t reply = 0;   // its number, and
  std::uint32_t choice = 0;  // which of several to one request: its draws depend on both
  bool at_text_start = false;
  // What the reply may be; null: anything. It ends as if the model had ended it where nothing can
  // follow.
  std::shared_ptr<const Grammar> grammar = nullptr;
  std::vector<Token> shown = {};  // special tokens that are part of the text (tool_calls.h)
  std::shared_ptr<const ThoughtBudget> thoughts = nullptr;  // how long thoughts may be (thoughts.h)
  int priority = 0;                                         // larger goes first
  std::optional<double> seconds = {};                       // from now; then it is interrupted
  Replay replay = {};
  // What the reply may turn out to be: guessed before all else, and as much of it as a step has
  // room for. Like any guess it changes no token.
  std::vector<Token> expected = {};
  // When it has a sequence, and after each step that fed some of its prompt.
  PromptSink on_prompt = [](std::int64_t, std::int64_t) {};
  TextSink on_text = [](std::string_view) {};
  // What one step added to the reply, before its text.
  std::function<void(std::span<const Token>)> on_tokens = [](std::span<const Token>) {};
  // Where it is given: the same tokens and the raw logits [tokens][V] by which they were drawn,
  // whatever the settings make of these (logprobs.h, receipt.h). Called before on_tokens.
  std::function<void(std::span<const Token>, std::span<const float>)> on_logits = {};
  std::function<void(const EngineReply&)> on_end = [](const EngineReply&) {};
};

// A text that becomes one vector, or of which each token's probability is told: the engine's own
// but for `tokens` and `top`, and `mean` or `logprobs` in the end.
struct EmbeddedText {
  std::vector<Token> tokens;
  // Where it is given: how probable each token was after those before it, with so many others.
  std::optional<int> top = {};
  std::vector<float> mean = {};              // [W]
  std::vector<TokenLogprobs> logprobs = {};  // [tokens - 1], from the second token on
  std::vector<double> sums = {};
  std::size_t fed = 0;
  std::int32_t sequence = -1;  // -1: none yet, or no more
  std::uint64_t id = 0;

  bool done() const { return !tokens.empty() && sequence < 0 && fed == tokens.size(); }
};

struct EngineCounts {
  std::int64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
  std::int64_t guessed_tokens = 0, right_guesses = 0, evictions = 0;
  std::int64_t drafted_tokens = 0, right_drafts = 0;  // of the guesses, those of a draft model
  std::int64_t steps_ahead = 0;  // begun before the host had the token that they feed
};

class GrammarCache;

class Engine {
 public:
  // `session` and `tokenizer` must outlive the engine, and nobody else may use the session's cache.
  // Where the model has act online, whose scales remember earlier steps, nothing is guessed or used
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
  // Whether save_prompt, load_prompt and embed find a sequence that nobody has.
  bool has_idle_sequence() const;

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
  // Why a draft model guesses no more, where it failed; null else.
  const Error* draft_error() const;

 private:
  struct Active;
  // The next token of the only reply, which the device draws while the host goes on.
  struct Ahead {
    RequestId id = 0;
    std::unique_ptr<Drawing> drawing;  // null: it has ended, with
    Token drawn = 0;                   // a token, or below 0: none
    const Rows* logits = nullptr;
  };

  std::vector<Job> jobs();
  Job job_of(Active& active, bool may_join);
  PrefixCache::Found known_prefix(const Active& active, bool use);
  void guess(const std::vector<Job*>& writers);
  std::vector<Token> script_of(const Active& active) const;
  std::int64_t most_guesses() const;
  bool guess_expected(Active& active) const;
  void follow_prompts(const std::vector<Feed>& parts);
  void end_overdue();
  void admit(Active& active);
  void evict(Active& active);
  void make_pages(const std::vector<Feed>& parts);
  void run(std::vector<Feed> parts);
  void fail(const std::vector<Feed>& parts, const Error& error);
  void draw(const std::vector<Feed>& parts, const Rows& logits);
  void fetch_logits(const std::vector<Feed>& parts, const Rows& logits);
  void report_logits(const Active& active, std::span<const Token> taken, std::int64_t first_row);
  void take(Active& active, const Feed& part, std::span<const Token> drawn, const Rows& logits,
            std::int64_t first_row);
  bool may_run_ahead(const Active& active) const;
  bool guesses_next(Active& active);
  bool begin_ahead(const Feed& part, const Rows& logits);
  std::optional<Ahead> draw_ahead(Active& active, const Rows& logits,
                                  std::span<const Token> fed_since);
  std::optional<Ahead> begin_next(Active& active);
  void step_ahead();
  void land_ahead();
  void drop_ahead();
  std::int64_t settled_length(const Active& active) const;
  std::int32_t idle_sequence() const;
  void begin(EmbeddedText& text);
  void feed_chunk(EmbeddedText& text);
  void add_hidden(EmbeddedText& text, std::span<const Token> part);
  void add_logprobs(EmbeddedText& text, std::span<const Token> part);
  void leave(EmbeddedText& text);
  bool give_up_texts();
  void remember(Active& active, bool last_too);
  void end(Active& active);
  void leave(Active& active);

  Session& session_;
  const Tokenizer& tokenizer_;
  EngineOptions options_;
  PrefixCache prefixes_;
  std::optional<DraftModel> draft_;
  StepCosts costs_;
  EngineCounts counts_;
  RequestId next_id_ = 0;
  std::map<RequestId, std::unique_ptr<Active>> active_;
  std::size_t vocabulary_;
  std::vector<Token> without_text_;   // ids that are never drawn
  std::vector<bool> taken_;           // by sequence
  std::vector<std::uint64_t> texts_;  // by sequence: the text that becomes a vector there, or 0
  std::uint64_t last_text_ = 0;
  std::unique_ptr<GrammarCache> grammars_;
  std::optional<Ahead> ahead_;
  // Of the step in work:
  Batch batch_;
  std::vector<std::vector<LogitChange>> changes_;
  std::vector<std::vector<std::uint64_t>> masks_;
  std::vector<SampleRequest> requests_;
  std::vector<Token> drawn_;
  std::vector<float> raw_logits_;  // [outputs][V] on the host, where somebody wants them
};

}  // namespace leq
