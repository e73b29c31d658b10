#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/reply.h"
#include "engine/prefix_cache.h"

namespace leq {

TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top) {
  const double most = double{*std::ranges::max_element(logits)};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  const double log_sum = most + std::log(sum);
  const auto logprob = [&](Token of) {
    return static_cast<float>(double{logits[static_cast<std::size_t>(of)]} - log_sum);
  };
  TokenLogprobs result;
  result.id = id;
  result.logprob = logprob(id);
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min(static_cast<std::ptrdiff_t>(top), std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](Token a, Token b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    result.top.push_back(
        {ids[static_cast<std::size_t>(i)], logprob(ids[static_cast<std::size_t>(i)])});
  }
  return result;
}

std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top) {
  std::vector<TokenLogprobs> all;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t vocabulary = logits.size() / tokens.size();
    all.push_back(token_logprobs(logits.subspan(i * vocabulary, vocabulary), tokens[i], top));
  }
  return all;
}

namespace {

constexpr std::size_t kMaxGrammars = 4;
constexpr std::size_t kMaxGrammarBytes = 128 << 20;  // kept beside the latest one

// With act online, disables prefix reuse and speculation, because scales depend on earlier steps.
EngineOptions usable(EngineOptions options, Session& session) {
  if (session.transformer().online().empty()) return options;
  options.reuse_prefixes = options.speculate = false;
  return options;
}

// The most bytes of states inside a saved text; the state at its end is not counted.
constexpr std::size_t kMaxStateBytes = std::size_t{1} << 30;

// The indices of `count` ascending positions, at most `most`: the last ones, and if there are
// several also the first, which is usually the end of a system message that other texts share.
std::vector<std::size_t> first_and_last(std::size_t count, std::size_t most) {
  std::vector<std::size_t> chosen;
  if (count > most && most > 1) chosen.push_back(0);
  const std::size_t rest = std::min(count, most) - chosen.size();
  for (std::size_t i = count - rest; i < count; ++i) chosen.push_back(i);
  return chosen;
}

bool wants_all_rows(const EmbeddedText& text) {
  return text.top || text.pooling == Pooling::mean || text.pooling == Pooling::none;
}

}  // namespace

Embedder::Embedder(Session& session, PrefixCache& prefixes, SequencePool& sequences)
    : session_(session), prefixes_(prefixes), sequences_(sequences), texts_(sequences.size(), 0) {}

void Embedder::advance(EmbeddedText& text, bool has_running) {
  if (!has_sequence(text)) {
    const bool was_evicted = text.id != 0;
    if (was_evicted && (!sequences_.has_idle() || follows_another(text))) return;
    begin(text);
  }
  prefill_chunk(text, has_running);
  if (text.fed < text.tokens.size()) return;
  leave(text);
  for (const double sum : text.sums) {
    text.values.push_back(static_cast<float>(sum / static_cast<double>(text.tokens.size())));
  }
  const bool pooled = text.pooling != Pooling::none && text.pooling != Pooling::rank;
  if (pooled && !text.top) project(text.values);
}

// Multiplies the embedding by the model's matrix, if it has one.
void Embedder::project(std::vector<float>& embedding) const {
  const std::vector<float>& matrix = session_.weights().embedding_projection;
  if (matrix.empty()) return;
  const std::vector<float> pooled = std::exchange(embedding, {});
  for (auto row = matrix.begin(); row != matrix.end(); row += std::ssize(pooled)) {
    embedding.push_back(static_cast<float>(
        std::inner_product(pooled.begin(), pooled.end(), row, 0.0, std::plus<>(),
                           [](float a, float b) { return double{a} * double{b}; })));
  }
}

void Embedder::begin(EmbeddedText& text) {
  Transformer& transformer = session_.transformer();
  check_prompt(text.tokens, static_cast<std::size_t>(transformer.config().vocab),
               transformer.limits().context + 1,  // reserves no position for a reply
               longest_context(transformer.config()));
  require(
      transformer.online().empty(), ErrorKind::bad_input,
      "embeddings: this model's activations remember earlier steps, which a text must not change;"
      " quantize it with ",
      Setting{"act"}, " row");
  text.sequence = sequences_.take();
  if (text.id == 0) text.id = ++last_text_;
  text.fed = 0;
  text.sums.clear();
  text.values.clear();
  text.logprobs.clear();
  texts_[static_cast<std::size_t>(text.sequence)] = text.id;
}

bool Embedder::has_sequence(const EmbeddedText& text) const {
  return text.sequence >= 0 && texts_[static_cast<std::size_t>(text.sequence)] == text.id;
}

// Whether an older text is being prefilled.
bool Embedder::follows_another(const EmbeddedText& text) const {
  return std::ranges::any_of(texts_, [&](std::uint64_t id) { return id != 0 && id < text.id; });
}

void Embedder::leave(EmbeddedText& text) {
  if (has_sequence(text)) evict(text.sequence);
  text.sequence = -1;
}

void Embedder::evict(std::int32_t sequence) {
  texts_[static_cast<std::size_t>(sequence)] = 0;
  session_.state().drop(sequence);
  sequences_.release(sequence);
}

bool Embedder::drop_all() {
  bool any = false;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i] == 0) continue;
    evict(static_cast<std::int32_t>(i));
    any = true;
  }
  return any;
}

void Embedder::prefill_chunk(EmbeddedText& text, bool has_running) {
  const SequenceState state = session_.state();
  const RunLimits& limits = session_.limits();
  const bool all_rows = wants_all_rows(text);
  const auto most = static_cast<std::size_t>(
      all_rows ? std::min(limits.batch_tokens, limits.output_tokens) : limits.batch_tokens);
  const auto rest = std::span<const Token>(text.tokens).subspan(text.fed);
  const auto part = rest.first(std::min(most, rest.size()));
  const std::int64_t pages = state.pages().pages_to_append(text.sequence, std::ssize(part));
  prefixes_.make_free(pages);
  prefixes_.make_states_free(1);
  while (state.pages().free_pages() < pages) {
    if (has_running || follows_another(text)) return;  // these end and free pages
    const auto youngest = std::ranges::max_element(texts_);
    if (*youngest == text.id) break;
    evict(static_cast<std::int32_t>(youngest - texts_.begin()));
  }
  add_rows(text, part);
  if (text.top) {
    add_logprobs(text, part);
  } else if (text.pooling == Pooling::rank) {
    add_answers(text);
  } else {
    add_hidden(text);
  }
  text.fed += part.size();
}

// Sets the batch, whose outputs are the tokens that count.
void Embedder::add_rows(EmbeddedText& text, std::span<const Token> part) {
  batch_.clear();
  batch_.add(text.sequence, part.data(), std::ssize(part),
             wants_all_rows(text) ? Batch::Want::all : Batch::Want::none);
  if (wants_all_rows(text)) return;
  const bool first = text.pooling == Pooling::cls;
  if (first && text.fed == 0) batch_.outputs = {0};
  const bool ends = text.fed + part.size() == text.tokens.size();
  if (!first && ends) batch_.outputs = {static_cast<std::int32_t>(part.size() - 1)};
}

void Embedder::add_hidden(EmbeddedText& text) {
  const auto width = static_cast<std::size_t>(session_.transformer().config().width);
  const Rows& hidden = session_.transformer().hidden(batch_, session_.state());
  std::vector<float> rows(batch_.outputs.size() * width);
  if (rows.empty()) return;
  session_.transformer().backend().download(hidden, std::ssize(batch_.outputs), rows);
  if (text.pooling != Pooling::mean) {
    text.values.insert(text.values.end(), rows.begin(), rows.end());
    return;
  }
  text.sums.resize(width, 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i) text.sums[i % width] += double{rows[i]};
}

void Embedder::add_answers(EmbeddedText& text) {
  const Rows& logits = session_.transformer().forward(batch_, session_.state());
  if (batch_.outputs.empty()) return;
  std::vector<float> row(static_cast<std::size_t>(session_.transformer().config().vocab));
  session_.transformer().backend().download(logits, 1, row);
  for (const Token id : text.answers) {
    text.values.push_back(row.at(static_cast<std::size_t>(id)));
  }
}

// Row i of the logits holds the probabilities of token i + 1.
void Embedder::add_logprobs(EmbeddedText& text, std::span<const Token> part) {
  const auto vocabulary = static_cast<std::size_t>(session_.transformer().config().vocab);
  const Rows& logits = session_.transformer().forward(batch_, session_.state());
  std::vector<float> rows(part.size() * vocabulary);
  session_.transformer().backend().download(logits, std::ssize(part), rows);
  for (std::size_t i = 0; i < part.size() && text.fed + i + 1 < text.tokens.size(); ++i) {
    const auto row = std::span<const float>(rows).subspan(i * vocabulary, vocabulary);
    text.logprobs.push_back(token_logprobs(row, text.tokens[text.fed + i + 1], *text.top));
  }
}

Engine::Engine(Session& session, const Tokenizer& tokenizer, const EngineOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(usable(options, session)),
      sequences_(session.limits().sequences),
      prefixes_(session.state()),
      embedder_(session, prefixes_, sequences_),
      speculator_(session, options_),
      vocabulary_(static_cast<std::size_t>(session.transformer().config().vocab)),
      without_text_(ids_without_token(tokenizer, vocabulary_)) {}

Engine::~Engine() {
  finish_ahead();
  for (std::int32_t sequence = 0; sequence < session_.limits().sequences; ++sequence) {
    if (sequences_.is_taken(sequence)) session_.state().drop(sequence);
  }
}

// Requests with the same grammar share its tables, and the most recent grammars are kept.
std::shared_ptr<GrammarMatcher> Engine::matcher_of(const std::shared_ptr<const Grammar>& grammar,
                                                   std::span<const Token> shown) {
  if (!grammar) return nullptr;
  std::vector<ShownToken> texts = with_texts(tokenizer_, shown);
  const auto known = std::ranges::find_if(grammars_, [&](const KnownGrammar& one) {
    return one.grammar == grammar && one.shown == texts;
  });
  if (known != grammars_.end()) {  // the next replies get new tables before the old ones are full
    if (known->matcher->is_crowded()) known->matcher = known->matcher->emptied();
    return known->matcher;
  }
  if (!trie_) trie_ = make_token_trie(tokenizer_, vocabulary_);
  std::size_t bytes = 0;
  for (const KnownGrammar& one : grammars_) bytes += one.matcher->bytes();
  while (!grammars_.empty() && (grammars_.size() >= kMaxGrammars || bytes > kMaxGrammarBytes)) {
    bytes -= grammars_.front().matcher->bytes();
    grammars_.pop_front();
  }
  auto matcher = std::make_shared<GrammarMatcher>(grammar, trie_, texts, options_.grammar_limits);
  grammars_.push_back({grammar, std::move(texts), std::move(matcher)});
  return grammars_.back().matcher;
}

RequestId Engine::submit(EngineRequest request) {
  session_.transformer().check_writes();
  check_prompt(request.prompt, vocabulary_, context(), longest_context());
  std::vector<Token> banned = without_text_;
  banned.insert(banned.end(), request.banned.begin(), request.banned.end());
  const Sampler sampler(request.sampling, vocabulary_, banned, tokenizer_);
  const RequestId id = next_id_++;
  Reply reply(tokenizer_, request.prompt, sampler,
              {.stop = request.stop,
               .context = context(),
               .number = request.reply,
               .choice = request.choice,
               .at_text_start = request.at_text_start,
               .begun = request.begun.value_or(0),
               .grammar = matcher_of(request.grammar, request.shown),
               .shown = request.shown,
               .reasoning = request.reasoning});
  active_[id] = std::make_unique<Active>(Active{id, std::move(request), std::move(reply)});
  active_[id]->report.id = id;
  if (session_.state().fixed() != nullptr && options_.reuse_prefixes) {
    active_[id]->marks =
        state_marks(active_[id]->request.prompt, tokenizer_, session_.limits().kept_states);
  }
  return id;
}

void Engine::cancel(RequestId id) {
  const auto found = active_.find(id);
  if (found != active_.end()) found->second->cancelled = true;
}

std::size_t Engine::running() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(active_, [](const auto& one) { return one.second->running(); }));
}
std::size_t Engine::waiting() const { return active_.size() - running(); }

bool Engine::step() {
  end_overdue();
  if (active_.empty()) return false;
  Stopwatch watch;
  if (ahead_) {
    step_ahead();
    costs_.record(1, 0, watch.seconds());
    ++counts_.steps;
    return true;
  }
  const std::vector<Job> all = jobs();
  const StepPlan plan = plan_step(all, step_budget(all));
  if (plan.unfit) {
    if (embedder_.drop_all()) return step();  // texts being embedded had its pages
    fail({Feed{.id = *plan.unfit}},
         Error("scheduler: too few pages for the request", ErrorKind::internal));
    return true;
  }
  for (const RequestId id : plan.evicted) evict(*active_.at(id));
  for (const Feed& part : plan.feeds) {
    if (Active& active = *active_.at(part.id); !active.running()) admit(active);
  }
  for (const auto& [id, active] : active_) {
    if (!active->running()) ++active->waited;
  }
  free_pages_for(plan.feeds);
  watch.restart();
  run(plan.feeds);
  std::int64_t outputs = 0, prompt_tokens = 0;
  for (const Feed& part : plan.feeds) {
    outputs += part.draws ? 1 + part.drafts : 0;
    prompt_tokens += part.tokens - (part.draws ? 1 : 0);
  }
  costs_.record(outputs, prompt_tokens, watch.seconds());
  ++counts_.steps;
  follow_prompts(plan.feeds);
  return true;
}

StepBudget Engine::step_budget(const std::vector<Job>& all) const {
  const RunLimits& limits = session_.limits();
  StepBudget budget;
  // Sequences that are used by texts being embedded are not available to requests.
  const auto of_texts = sequences_.taken() - static_cast<std::int64_t>(running());
  budget.sequences = limits.sequences - static_cast<int>(of_texts);
  budget.tokens = limits.batch_tokens;
  budget.outputs = limits.output_tokens;
  budget.pages = session_.cache().free_pages() + prefixes_.idle_pages();
  const auto writers =
      std::ranges::count_if(all, [](const Job& job) { return job.running && job.writes(); });
  const double slowdown = options_.prompt_slowdown * prompts_per_writer(all, budget.sequences);
  budget.prompt_tokens = costs_.prompt_tokens_within(slowdown, writers);
  return budget;
}

// Ends replies that timed out, were cancelled, or are complete before their first token.
void Engine::end_overdue() {
  std::vector<Active*> ending;
  for (const auto& [id, active] : active_) {
    const auto& seconds = active->request.seconds;
    const bool late = seconds && active->since_submission.seconds() > *seconds;
    if (late || active->cancelled) active->reply.interrupt();
    if (active->reply.stopped() != StopReason::none) ending.push_back(active.get());
  }
  for (Active* active : ending) end(*active);
}

std::vector<Job> Engine::jobs() {
  std::vector<Job> all;
  const bool may_join = has_idle_sequence();
  for (const auto& [id, active] : active_) all.push_back(job_of(*active, may_join));
  if (!options_.speculate) return all;
  std::vector<Job*> writers;
  for (Job& job : all) {
    if (job.running && job.writes()) writers.push_back(&job);
  }
  propose_drafts(writers);
  return all;
}

Job Engine::job_of(Active& active, bool may_join) {
  Job job;
  job.id = active.id;
  job.priority = active.request.priority;
  job.waited = active.waited;
  job.running = active.running();
  job.known = active.known();
  const KvCache& cache = session_.cache();
  job.max_pages = pages_for(job.known + 1);
  if (!job.running) {
    if (!may_join) return job;  // saves a cache look-up per queued job and step
    const PrefixCache::Match found = known_prefix(active, false);
    const bool misses =
        session_.state().fixed() != nullptr && found.matched - found.tokens >= kPageTokens;
    active.branch = misses ? found.matched : 0;
    job.fed = found.tokens;
    job.pages = pages_for(job.fed);
    job.shares_last_page = job.fed % kPageTokens != 0;
    job.mark = active.next_mark(job.fed);
    return job;
  }
  job.fed = cache.length(active.sequence);
  job.mark = active.next_mark(job.fed);
  for (const std::int32_t page : cache.pages(active.sequence)) {
    ++job.pages;
    if (cache.holders(page) - (prefixes_.holds(page) ? 1 : 0) == 1) ++job.own_pages;
  }
  job.shares_last_page = cache.shares_last_page(active.sequence);
  return job;
}

// Whether the prefix cache and the request, which continues, may hold the same pages of its first
// `length` tokens. A partially used page is copied before it is written, which takes one more page.
bool Engine::may_share(const Active& active, std::int64_t length) const {
  return length % kPageTokens == 0 || pages_for(active.known()) < session_.cache().page_count();
}

// Leaves at least the last token to be fed, because its logits are needed.
PrefixCache::Match Engine::known_prefix(const Active& active, bool use) {
  if (!options_.reuse_prefixes) return {};
  const auto tokens = active.reply.context().first(static_cast<std::size_t>(active.known() - 1));
  PrefixCache::Match found = prefixes_.find(tokens, use);
  if (!may_share(active, found.tokens)) {
    prefixes_.cut(found, found.tokens - found.tokens % kPageTokens);
    if (found.tokens % kPageTokens != 0) found = {};
  }
  return found;
}

void Engine::propose_drafts(std::span<Job* const> jobs) {
  std::vector<Speculator::Writer> writers;
  for (const Job* job : jobs) {
    Active& active = *active_.at(job->id);
    writers.push_back({active.sequence, &active.request, &active.reply, &active.drafts});
  }
  speculator_.propose(writers, costs_);
  for (Job* job : jobs) job->drafts = std::ssize(active_.at(job->id)->drafts.tokens);
}

void Engine::follow_prompts(const std::vector<Feed>& parts) {
  DraftModel* const draft = speculator_.draft_model();
  if (draft == nullptr) return;
  std::vector<DraftModel::Reader> readers;
  for (const Feed& part : parts) {
    const auto found = active_.find(part.id);
    if (found == active_.end()) continue;
    const Active& active = *found->second;
    if (part.tokens == 1 && !(active.running() && draft->lags(active.sequence))) continue;
    if (!active.running() || active.request.sampling.mirostat != 0) continue;
    const auto length = static_cast<std::size_t>(session_.cache().length(active.sequence));
    readers.push_back({active.sequence, active.reply.context().first(length)});
  }
  draft->follow(readers);
}

void Engine::admit(Active& active) {
  ensure(has_idle_sequence(), "engine: a request without a sequence");
  active.sequence = sequences_.take();
  active.report.sequence = active.sequence;
  if (active.report.evictions == 0) {
    active.report.waiting_seconds = active.since_submission.seconds();
    active.since_prompt.restart();
  }
  const PrefixCache::Match found = known_prefix(active, true);
  active.kept_pages = found.tokens / kPageTokens;
  session_.state().adopt(active.sequence, found.prefix());
  if (active.report.evictions == 0) {
    active.report.cached_tokens = found.tokens;
    active.request.on_prompt(0, std::ssize(active.request.prompt) - found.tokens);
  }
  counts_.cached_tokens += found.tokens;
}

void Engine::evict(Active& active) {
  remember(active, true);
  leave(active);
  ++active.report.evictions;
  ++counts_.evictions;
}

// Evicts old entries of the prefix cache until enough pages and states for the parts are free.
void Engine::free_pages_for(const std::vector<Feed>& parts) {
  const KvCache& cache = session_.cache();
  std::int64_t needed = 0;
  for (const Feed& part : parts) {
    needed += cache.pages_to_append(active_.at(part.id)->sequence, part.tokens + part.drafts);
  }
  prefixes_.make_free(needed);
  prefixes_.make_states_free(std::ssize(parts));
}

void Engine::remember(Active& active, bool last_too) {
  if (!options_.reuse_prefixes) return;
  const std::int64_t length = committed_length(active);
  if (length <= std::ssize(active.request.prompt)) session_.cache().keep_window(active.sequence);
  last_too = last_too || (active.is_mark(length) && may_share(active, length));
  if (!last_too && length / kPageTokens == active.kept_pages) return;
  active.kept_pages = length / kPageTokens;
  prefixes_.keep(active.sequence, active.reply.context().first(static_cast<std::size_t>(length)),
                 last_too, last_too);
}

void Engine::end(Active& active) {
  if (ahead_ && ahead_->id == active.id) drop_ahead();
  EngineReply& report = active.report;
  report.text = active.reply.text();
  if (active.reply.stopped() != StopReason::failed) {
    std::string rest = active.reply.finish();
    if (active.request.begun && active.reply.stopped() == StopReason::context_full) {
      report.rest = std::move(rest);
    } else if (!rest.empty()) {
      report.text += rest;
      active.request.on_text(rest);
    }
  }
  report.tokens.assign(active.reply.tokens().begin(), active.reply.tokens().end());
  report.stopped = active.reply.stopped();
  report.stop_string = active.reply.stop_string();
  if (report.stopped == StopReason::failed && !report.error) {
    report.error = Error(active.reply.error());
  }
  report.reply_seconds = report.first_token_seconds > 0
                             ? active.since_submission.seconds() - report.first_token_seconds
                             : 0;
  if (active.running()) {
    remember(active, true);
    leave(active);
  }
  const std::unique_ptr<Active> ended = std::move(active_.at(active.id));
  active_.erase(ended->id);
  ended->request.on_end(ended->report);
}

void Engine::leave(Active& active) {
  if (DraftModel* const draft = speculator_.draft_model()) draft->leave(active.sequence);
  session_.state().drop(active.sequence);
  sequences_.release(active.sequence);
  active.sequence = -1;
}

// Engine operations other than replies: saving and loading the texts of the prefix cache, and
// embedding texts.

namespace {

// A sequence of no request, empty again at the end of the scope, also after an error.
struct IdleSequence {
  SequenceState state;
  std::int32_t id;
  ~IdleSequence() { state.drop(id); }
};

}  // namespace

SavedPrefix Engine::save_prefix(std::span<const Token> tokens) {
  finish_ahead();
  const SequenceState state = session_.state();
  SavedPrefix prefix;
  if (!options_.reuse_prefixes) return prefix;
  const PrefixCache::Match found = prefixes_.find(tokens, false);
  prefix.tokens.assign(tokens.begin(), tokens.begin() + found.tokens);
  {
    const IdleSequence sequence = {state, sequences_.idle()};
    state.adopt(sequence.id, found.prefix());
    prefix.kv = state.save(sequence.id);
  }
  const FixedStates* const fixed = state.fixed();
  if (fixed == nullptr) return prefix;
  std::vector<PrefixCache::KeptState> kept = prefixes_.states(prefix.tokens);
  if (!kept.empty() && kept.back().position == found.tokens) kept.pop_back();
  for (const std::size_t i : first_and_last(kept.size(), kMaxStateBytes / fixed->whole_bytes())) {
    SavedState& saved = prefix.states.emplace_back();
    saved.position = kept[i].position;
    saved.bytes.resize(fixed->whole_bytes());
    fixed->read(kept[i].state, saved.bytes);
  }
  return prefix;
}

bool Engine::load_prefix(const SavedPrefix& prefix, std::string_view source) {
  finish_ahead();
  if (!options_.reuse_prefixes) return false;
  const SequenceState state = session_.state();
  const KvCache& cache = state.pages();
  const auto length = std::ssize(prefix.tokens);
  for (const Token id : prefix.tokens) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary_, source, ": token ", id,
            ", expected ids below ", vocabulary_, "; the file is damaged, remove it");
  }
  for (const SavedState& saved : prefix.states) state.check_state(saved.bytes, source);
  const std::int64_t needed = pages_for(length);
  prefixes_.make_free(needed + std::ssize(prefix.states));  // each state has a page of its own
  if (length > cache.shape().positions || cache.free_pages() < needed) return false;
  prefixes_.make_states_free(1);
  const IdleSequence sequence = {state, sequences_.idle()};
  state.load(sequence.id, prefix.kv, source);
  const std::int64_t found = state.length(sequence.id);
  require(found == length, source, ": ", length, " tokens with keys and values of ", found,
          "; the file is damaged, remove it");
  prefixes_.keep(sequence.id, prefix.tokens, true);
  load_states(prefix, sequence.id);
  return true;
}

// Keeps the states inside a loaded prefix, from the last one to the first, as its sequence is
// shortened to their positions. Leaves out those for which there is too little memory.
void Engine::load_states(const SavedPrefix& prefix, std::int32_t sequence) {
  const SequenceState state = session_.state();
  const std::int64_t most = session_.limits().kept_states - 1;  // beside the state at the end
  if (prefix.states.empty() || most <= 0) return;
  auto chosen = first_and_last(prefix.states.size(), static_cast<std::size_t>(most));
  std::ranges::reverse(chosen);
  for (const std::size_t i : chosen) {
    const SavedState& saved = prefix.states[i];
    const auto before = std::span(prefix.tokens).first(static_cast<std::size_t>(saved.position));
    const auto known = prefixes_.states(before);
    if (!known.empty() && known.back().position == saved.position) continue;
    prefixes_.make_states_free(1);
    if (!state.shorten(sequence, saved.position, saved.bytes)) continue;
    prefixes_.keep(sequence, before, true);
  }
  prefixes_.find(prefix.tokens, true);  // the end was used last
}

std::vector<float> Engine::embed(std::span<const Token> tokens, Pooling pooling) {
  EmbeddedText text = {.tokens = {tokens.begin(), tokens.end()}, .pooling = pooling};
  while (!text.done()) embed_chunk(text);
  return std::move(text.values);
}

void Engine::embed_chunk(EmbeddedText& text) {
  finish_ahead();
  try {
    embedder_.advance(text, running() > 0);
    options_.check_step();
  } catch (...) {
    embedder_.leave(text);
    throw;
  }
}

}  // namespace leq
