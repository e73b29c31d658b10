#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/engine_active.h"
#include "engine/grammar_cache.h"
#include "engine/state_marks.h"

namespace leq {

namespace {

// With act online, disables prefix reuse and speculation, because scales depend on earlier steps.
EngineOptions usable(EngineOptions options, Session& session) {
  if (session.transformer().online().empty()) return options;
  options.reuse_prefixes = options.speculate = false;
  return options;
}

}  // namespace

Engine::Engine(Session& session, const Tokenizer& tokenizer, const EngineOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(usable(options, session)),
      sequences_(session.limits().sequences),
      prefixes_(session.state()),
      embedder_(session, prefixes_, sequences_),
      speculator_(session, options_),
      vocabulary_(static_cast<std::size_t>(session.transformer().config().vocab)),
      without_text_(ids_without_token(tokenizer, vocabulary_)),
      grammars_(std::make_unique<GrammarCache>(tokenizer, vocabulary_)) {}

Engine::~Engine() {
  finish_ahead();
  for (std::int32_t sequence = 0; sequence < session_.limits().sequences; ++sequence) {
    if (sequences_.is_taken(sequence)) session_.state().drop(sequence);
  }
}

void Engine::check_grammar(const std::shared_ptr<const Grammar>& grammar) {
  (void)grammars_->matcher_of(grammar, {});
}

RequestId Engine::submit(EngineRequest request) {
  check_prompt(request.prompt, vocabulary_, context());
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
               .grammar = grammars_->matcher_of(request.grammar, request.shown),
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
  StepPlan plan;
  try {
    plan = plan_step(all, step_budget(all));
  } catch (const Error&) {  // no request fits while texts are being embedded
    if (!embedder_.drop_all()) throw;
    return step();
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
  job.most_pages = cache.most_pages(job.known + 1);
  if (!job.running) {
    if (!may_join) return job;  // saves a cache look-up per queued job and step
    const PrefixCache::Match found = known_prefix(active, false);
    const bool misses =
        session_.state().fixed() != nullptr && found.matched - found.tokens >= kPageTokens;
    active.branch = misses ? found.matched : 0;
    job.fed = found.tokens;
    job.pages = cache.pages_to_begin(job.fed);
    job.shares_last_page = job.fed % kPageTokens != 0;
    job.mark = active.next_mark(job.fed);
    return job;
  }
  job.fed = cache.length(active.sequence);
  job.mark = active.next_mark(job.fed);
  for (const std::int32_t page : cache.pages(active.sequence)) {
    if (page == KvCache::kNoPage) continue;
    ++job.pages;
    if (cache.holders(page) - (prefixes_.holds(page) ? 1 : 0) == 1) ++job.own_pages;
  }
  job.shares_last_page = cache.shares_last_page(active.sequence);
  return job;
}

// Leaves at least the last token to be fed, because its logits are needed.
PrefixCache::Match Engine::known_prefix(const Active& active, bool use) {
  if (!options_.reuse_prefixes) return {};
  const auto tokens = active.reply.context().first(static_cast<std::size_t>(active.known() - 1));
  PrefixCache::Match found = prefixes_.find(tokens, use);
  // A partially used page is copied before it is written, which takes one more page.
  const KvCache& cache = session_.cache();
  if (cache.most_pages(active.known()) == cache.page_count() && found.tokens % kPageTokens != 0) {
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
  if (!speculator_.follows()) return;
  std::vector<DraftModel::Reader> readers;
  for (const Feed& part : parts) {
    const auto found = active_.find(part.id);
    if (found == active_.end()) continue;
    const Active& active = *found->second;
    if (part.tokens == 1 && !(active.running() && speculator_.lags(active.sequence))) continue;
    if (!active.running() || active.request.sampling.mirostat != 0) continue;
    const auto length = static_cast<std::size_t>(session_.cache().length(active.sequence));
    readers.push_back({active.sequence, active.reply.context().first(length)});
  }
  speculator_.follow(readers);
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
  last_too = last_too || active.is_mark(length);
  if (!last_too && length / kPageTokens == active.kept_pages) return;
  active.kept_pages = length / kPageTokens;
  prefixes_.keep(active.sequence, active.reply.context().first(static_cast<std::size_t>(length)),
                 last_too, last_too);
}

void Engine::end(Active& active) {
  if (ahead_ && ahead_->id == active.id) drop_ahead();
  if (active.reply.stopped() != StopReason::failed) {
    if (const std::string rest = active.reply.finish(); !rest.empty()) active.request.on_text(rest);
  }
  EngineReply& report = active.report;
  report.tokens.assign(active.reply.tokens().begin(), active.reply.tokens().end());
  report.text = active.reply.text();
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
  speculator_.leave(active.sequence);
  session_.state().drop(active.sequence);
  sequences_.release(active.sequence);
  active.sequence = -1;
}

}  // namespace leq
