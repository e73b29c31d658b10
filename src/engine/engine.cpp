#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backend/checks.h"
#include "base/error.h"
#include "base/random.h"
#include "engine/engine_active.h"
#include "engine/grammar_cache.h"

namespace leq {

Engine::Engine(Session& session, const Tokenizer& tokenizer, const EngineOptions& options)
    : session_(session),
      tokenizer_(tokenizer),
      options_(options),
      prefixes_(session.cache()),
      vocabulary_(static_cast<std::size_t>(session.transformer().config().vocab)),
      without_text_(ids_without_token(tokenizer, vocabulary_)),
      taken_(static_cast<std::size_t>(session.limits().sequences), false),
      texts_(taken_.size(), 0),
      grammars_(std::make_unique<GrammarCache>(tokenizer, vocabulary_)) {
  if (!session.transformer().online().empty()) options_.reuse_prefixes = options_.speculate = false;
  if (options_.draft == nullptr || !options_.speculate) return;
  ensure(options_.draft->limits().sequences >= session.limits().sequences,
         "engine: a draft model with fewer sequences");
  draft_.emplace(*options_.draft, session.transformer().config().vocab);
}

Engine::~Engine() {
  land_ahead();
  for (std::size_t sequence = 0; sequence < taken_.size(); ++sequence) {
    if (taken_[sequence]) session_.cache().clear(static_cast<std::int32_t>(sequence));
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
               .thoughts = request.thoughts});
  active_[id] = std::make_unique<Active>(Active{id, std::move(request), std::move(reply)});
  active_[id]->report.id = id;
  return id;
}

void Engine::cancel(RequestId id) {
  const auto found = active_.find(id);
  if (found != active_.end()) found->second->cancelled = true;
}

const Error* Engine::draft_error() const {
  return draft_ && draft_->error() ? &*draft_->error() : nullptr;
}

bool Engine::has_idle_sequence() const { return std::ranges::find(taken_, false) != taken_.end(); }

std::int32_t Engine::idle_sequence() const {
  const auto free = std::ranges::find(taken_, false);
  require(free != taken_.end(), "saved prompts: all ", taken_.size(),
          " sequences are in use; try again when a reply has ended, or with more ",
          Setting{"sequences"});
  return static_cast<std::int32_t>(free - taken_.begin());
}

SavedPrompt Engine::save_prompt(std::span<const Token> tokens) {
  land_ahead();
  KvCache& cache = session_.cache();
  SavedPrompt prompt;
  if (!options_.reuse_prefixes) return prompt;
  const std::int32_t sequence = idle_sequence();
  const PrefixCache::Found found = prefixes_.find(tokens, false);
  cache.adopt(sequence, found.pages, found.tokens);
  prompt.tokens.assign(tokens.begin(), tokens.begin() + found.tokens);
  prompt.kv = cache.save(sequence);
  cache.clear(sequence);
  return prompt;
}

bool Engine::load_prompt(const SavedPrompt& prompt, std::string_view source) {
  land_ahead();
  if (!options_.reuse_prefixes) return false;
  KvCache& cache = session_.cache();
  const auto length = std::ssize(prompt.tokens);
  for (const Token id : prompt.tokens) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary_, source, ": token ", id,
            ", expected ids below ", vocabulary_, "; the file is damaged, remove it");
  }
  const std::int32_t sequence = idle_sequence();
  const std::int64_t needed = cache.pages_to_begin(length);
  prefixes_.make_free(needed);
  if (length > cache.shape().positions || cache.free_pages() < needed) return false;
  cache.load(sequence, prompt.kv, source);
  const bool agrees = cache.length(sequence) == length;
  if (agrees) prefixes_.keep(sequence, prompt.tokens, true);
  const std::int64_t found = cache.length(sequence);
  cache.clear(sequence);
  require(agrees, source, ": ", length, " tokens with keys and values of ", found,
          "; the file is damaged, remove it");
  return true;
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
    costs_.saw(1, 0, watch.seconds());
    ++counts_.steps;
    return true;
  }
  const std::vector<Job> all = jobs();
  const RunLimits& limits = session_.limits();
  StepRoom room;
  // Those of texts that become vectors are no requests.
  const auto taken = static_cast<std::size_t>(std::ranges::count(taken_, true));
  room.sequences = limits.sequences - static_cast<int>(taken - running());
  room.tokens = limits.batch_tokens;
  room.outputs = limits.output_tokens;
  room.pages = session_.cache().free_pages() + prefixes_.idle_pages();
  const auto writers =
      std::ranges::count_if(all, [](const Job& job) { return job.running && job.writes(); });
  const double patience = options_.prompt_patience * crowd_of_readers(all, room.sequences);
  room.prompt_tokens = costs_.prompt_tokens_within(patience, writers);
  StepPlan plan;
  try {
    plan = plan_step(all, room);
  } catch (const Error&) {  // nobody fits beside texts that become vectors
    if (!give_up_texts()) throw;
    return step();
  }
  for (const RequestId id : plan.evicted) evict(*active_.at(id));
  for (const Feed& part : plan.feeds) {
    if (Active& active = *active_.at(part.id); !active.running()) admit(active);
  }
  for (const auto& [id, active] : active_) {
    if (!active->running()) ++active->waited;
  }
  make_pages(plan.feeds);
  watch.restart();
  run(plan.feeds);
  std::int64_t outputs = 0, prompt_tokens = 0;
  for (const Feed& part : plan.feeds) {
    outputs += part.draws ? 1 + part.drafts : 0;
    prompt_tokens += part.tokens - (part.draws ? 1 : 0);
  }
  costs_.saw(outputs, prompt_tokens, watch.seconds());
  ++counts_.steps;
  follow_prompts(plan.feeds);
  return true;
}

// Those whose time is over, or whom nobody wants any more; and those that ended at their prompt.
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
  guess(writers);
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
    if (!may_join) return job;  // a long queue is not looked up in vain, step by step
    job.fed = known_prefix(active, false).tokens;
    job.pages = cache.pages_to_begin(job.fed);
    job.shares_last_page = job.fed % kPageTokens != 0;
    return job;
  }
  job.fed = cache.length(active.sequence);
  for (const std::int32_t page : cache.pages(active.sequence)) {
    if (page == KvCache::kNoPage) continue;
    ++job.pages;
    if (cache.holders(page) - (prefixes_.holds(page) ? 1 : 0) == 1) ++job.own_pages;
  }
  job.shares_last_page = cache.shares_last_page(active.sequence);
  return job;
}

// At least its last token is fed, since its logits are wanted.
PrefixCache::Found Engine::known_prefix(const Active& active, bool use) {
  if (!options_.reuse_prefixes) return {};
  const auto tokens = active.reply.context().first(static_cast<std::size_t>(active.known() - 1));
  PrefixCache::Found found = prefixes_.find(tokens, use);
  // A page that is used in part is copied, which takes one more.
  const KvCache& cache = session_.cache();
  if (cache.most_pages(active.known()) == cache.page_count() && found.tokens % kPageTokens != 0) {
    prefixes_.cut(found, found.tokens - found.tokens % kPageTokens);
    if (found.tokens % kPageTokens != 0) found = {};
  }
  return found;
}

// What was found in each text, or what the draft model makes, as plan_guesses weighs them.
void Engine::guess(const std::vector<Job*>& writers) {
  std::vector<GuessOffer> offers;
  std::vector<NgramProposer::Proposal> found;
  for (const Job* job : writers) {
    Active& active = *active_.at(job->id);
    active.guesses.clear();
    // Mirostat's draws wait for each other. A reply's last token is drawn, never guessed.
    const std::int64_t left = active.reply.tokens_left() - 1;
    const std::int64_t most = active.request.sampling.mirostat != 0 || guess_expected(active)
                                  ? 0
                                  : std::clamp<std::int64_t>(left, 0, most_guesses());
    found.push_back(active.proposer.propose(active.reply.context(), most));
    const bool drafts = draft_ && !draft_->error();
    offers.push_back({std::ssize(found.back().tokens), active.record.right_share(found.back().kind),
                      drafts ? most : 0, active.record.right_share(kDrafted)});
  }
  const std::vector<GuessCount> counts =
      options_.fixed_guesses > 0
          ? fixed_guesses(offers, options_.fixed_guesses)
          : plan_guesses(offers, costs_, draft_ ? draft_->costs() : StepCosts());
  std::vector<DraftModel::Writer> drafting;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    Active& active = *active_.at(writers[i]->id);
    if (!active.guesses.empty()) continue;  // expected
    active.kind = counts[i].drafted ? kDrafted : found[i].kind;
    if (counts[i].drafted) {
      drafting.push_back({active.sequence, &active.reply, counts[i].guesses, script_of(active)});
      continue;
    }
    const auto first = found[i].tokens.first(static_cast<std::size_t>(counts[i].guesses));
    active.guesses.assign(first.begin(), first.end());
  }
  if (!drafting.empty()) draft_->guess(drafting);
  auto drafted = drafting.begin();
  for (std::size_t i = 0; i < writers.size(); ++i) {
    Active& active = *active_.at(writers[i]->id);
    if (counts[i].drafted) active.guesses = std::move((drafted++)->guesses);
    writers[i]->drafts = std::ssize(active.guesses);
  }
}

// Whether there are guesses at a reply that is expected, as long as it is what was expected.
bool Engine::guess_expected(Active& active) const {
  const std::vector<Token>& expected = active.request.expected;
  const std::span<const Token> written = active.reply.tokens();
  if (active.request.sampling.mirostat != 0 || expected.size() <= written.size() ||
      !std::ranges::equal(written, std::span(expected).first(written.size()))) {
    return false;
  }
  const RunLimits& limits = session_.limits();
  const std::int64_t room =
      std::min({active.reply.tokens_left(), limits.output_tokens, limits.batch_tokens}) - 1;
  const auto next = std::span(expected).subspan(written.size());
  const auto count =
      std::min(next.size(), static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
  active.guesses.assign(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(count));
  active.kind = kExpectedReply;
  return !active.guesses.empty();
}

// What a replayed reply has the draft model guess: its own tokens, each of which is taken for
// another so often as to make the share.
std::vector<Token> Engine::script_of(const Active& active) const {
  const Replay& replay = active.request.replay;
  const std::size_t known = active.reply.tokens().size();
  std::vector<Token> script;
  for (std::size_t i = known; i < replay.tokens.size() && i < known + kMostGuesses; ++i) {
    const double dice = Random(i).uniform();
    const Token other =
        static_cast<Token>(static_cast<std::size_t>(replay.tokens[i] + 1) % vocabulary_);
    script.push_back(dice < replay.draft_share ? replay.tokens[i] : other);
  }
  return script;
}

std::int64_t Engine::most_guesses() const {
  return std::clamp<std::int64_t>(options_.most_guesses, 0, kMostGuesses);
}

// The draft model reads prompts as they are fed, not when it is to guess what follows them.
void Engine::follow_prompts(const std::vector<Feed>& parts) {
  if (!draft_) return;
  std::vector<DraftModel::Reader> readers;
  for (const Feed& part : parts) {
    const auto found = active_.find(part.id);
    if (part.tokens == 1 || found == active_.end()) continue;
    const Active& active = *found->second;
    if (!active.running() || active.request.sampling.mirostat != 0) continue;
    const auto length = static_cast<std::size_t>(session_.cache().length(active.sequence));
    readers.push_back({active.sequence, active.reply.context().first(length)});
  }
  draft_->follow(readers);
}

void Engine::admit(Active& active) {
  ensure(has_idle_sequence(), "engine: a request without a sequence");
  active.sequence = idle_sequence();
  taken_[static_cast<std::size_t>(active.sequence)] = true;
  active.report.sequence = active.sequence;
  if (active.report.evictions == 0) {
    active.report.waiting_seconds = active.since_submission.seconds();
    active.since_prompt.restart();
  }
  const PrefixCache::Found found = known_prefix(active, true);
  active.kept_pages = found.tokens / kPageTokens;
  session_.cache().adopt(active.sequence, found.pages, found.tokens);
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

// What the parts will append must be free: the oldest of what is kept for others goes.
void Engine::make_pages(const std::vector<Feed>& parts) {
  const KvCache& cache = session_.cache();
  std::int64_t needed = 0;
  for (const Feed& part : parts) {
    needed += cache.pages_to_append(active_.at(part.id)->sequence, part.tokens + part.drafts);
  }
  prefixes_.make_free(needed);
}

// Feeds the parts and draws. Where a batch fails, its parts are tried one by one, so that only
// those that cannot be fed fail.
void Engine::run(std::vector<Feed> parts) {
  batch_.clear();
  std::vector<Token> tokens;
  for (const Feed& part : parts) {
    const Active& active = *active_.at(part.id);
    const auto fed = static_cast<std::size_t>(session_.cache().length(active.sequence));
    const auto known = active.reply.context().subspan(fed, static_cast<std::size_t>(part.tokens));
    const std::int64_t silent = part.tokens - (part.draws ? 1 : 0);
    batch_.add(active.sequence, known.data(), silent, Batch::Want::none);
    if (!part.draws) continue;
    tokens.assign(1, known.back());
    tokens.insert(tokens.end(), active.guesses.begin(), active.guesses.begin() + part.drafts);
    batch_.add(active.sequence, tokens.data(), std::ssize(tokens), Batch::Want::all);
  }
  Transformer& transformer = session_.transformer();
  const Rows* logits = nullptr;
  try {
    logits = &transformer.forward(batch_, session_.cache());
  } catch (const Error& error) {
    if (parts.size() == 1) return fail(parts, error);
    for (const Feed& part : parts) run({part});
    return;
  }
  if (parts.size() == 1 && begin_ahead(parts[0], *logits)) return step_ahead();
  try {
    draw(parts, *logits);
    fetch_logits(parts, *logits);
    if (batch_.outputs.empty()) transformer.backend().synchronize();
  } catch (const Error& error) {  // of the device
    return fail(parts, error);
  }
  std::int64_t row = 0;
  for (const Feed& part : parts) {
    const std::int64_t rows = part.draws ? 1 + part.drafts : 0;
    take(*active_.at(part.id), part, {drawn_.begin() + row, drawn_.begin() + row + rows}, *logits,
         row);
    row += rows;
  }
}

void Engine::fail(const std::vector<Feed>& parts, const Error& error) {
  for (const Feed& part : parts) {
    Active& active = *active_.at(part.id);
    active.report.error = error;
    active.reply.fail(error.what());
    end(active);
  }
}

// One token for each row of logits: those after the guesses hold only where these are right.
void Engine::draw(const std::vector<Feed>& parts, const Rows& logits) {
  requests_.clear();
  changes_.clear();
  masks_.clear();
  changes_.reserve(batch_.outputs.size());  // requests point into them
  masks_.reserve(batch_.outputs.size());
  for (const Feed& part : parts) {
    if (!part.draws) continue;
    Active& active = *active_.at(part.id);
    const std::span<const Token> guesses = active.guesses;
    for (std::int64_t i = 0; i <= part.drafts; ++i) {
      SampleRequest request = active.reply.request(guesses.first(static_cast<std::size_t>(i)));
      changes_.emplace_back(request.changes.begin(), request.changes.end());
      request.changes = changes_.back();
      masks_.emplace_back(request.allowed.begin(), request.allowed.end());
      request.allowed = masks_.back();
      requests_.push_back(request);
    }
  }
  drawn_.resize(requests_.size());
  if (!requests_.empty()) session_.transformer().backend().sample(logits, requests_, drawn_);
}

// The step's logits on the host, where somebody wants them.
void Engine::fetch_logits(const std::vector<Feed>& parts, const Rows& logits) {
  const bool wanted = std::ranges::any_of(parts, [&](const Feed& part) {
    return part.draws && active_.at(part.id)->request.on_logits;
  });
  if (!wanted) return;
  raw_logits_.resize(batch_.outputs.size() * vocabulary_);
  session_.transformer().backend().download(logits, std::ssize(batch_.outputs), raw_logits_);
}

// Row i of the part's logits gave the i-th of the taken tokens.
void Engine::report_logits(const Active& active, std::span<const Token> taken,
                           std::int64_t first_row) {
  if (!active.request.on_logits) return;
  const auto first = static_cast<std::size_t>(first_row) * vocabulary_;
  active.request.on_logits(taken,
                           std::span(raw_logits_).subspan(first, taken.size() * vocabulary_));
}

// The reply takes its draws for as long as the guesses before them were right.
void Engine::take(Active& active, const Feed& part, std::span<const Token> drawn,
                  const Rows& logits, std::int64_t first_row) {
  KvCache& cache = session_.cache();
  const std::int64_t in_prompt = std::ssize(active.request.prompt);
  const std::int64_t fed = settled_length(active) - part.drafts;
  if (fed <= in_prompt) {
    active.report.fed_tokens += part.tokens;
    const std::int64_t all = in_prompt - active.report.cached_tokens;
    // Where its pages went to others some of it is fed again.
    active.request.on_prompt(std::max<std::int64_t>(0, all - (in_prompt - fed)), all);
  }
  counts_.prompt_tokens += part.tokens - (part.draws && fed > in_prompt ? 1 : 0);
  if (!part.draws) return remember(active, false);
  if (fed > in_prompt) active.report.decoded_tokens += 1;

  const std::size_t before = active.reply.tokens().size();
  std::int64_t right = 0;
  std::string text;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const std::size_t place = active.reply.tokens().size();
    const std::vector<Token>& replayed = active.request.replay.tokens;
    const Token next = place < replayed.size() ? replayed[place] : drawn[i];
    if (next < 0) {
      std::string why = active.reply.grammar_error();
      if (why.empty()) {
        why = undrawn_text(session_.transformer().backend(), logits,
                           first_row + static_cast<std::int64_t>(i), next);
      }
      active.reply.fail(std::move(why));
      break;
    }
    if (active.reply.tokens().empty()) {
      active.report.prompt_seconds = active.since_prompt.seconds();
      active.report.first_token_seconds = active.since_submission.seconds();
    }
    text += active.reply.take(next);
    ++counts_.reply_tokens;
    const bool guessed = i < static_cast<std::size_t>(part.drafts) && active.guesses[i] == next;
    if (guessed) ++right;
    if (!guessed || active.reply.stopped() != StopReason::none) break;
  }
  active.report.decoded_tokens += right;
  active.report.guessed_tokens += part.drafts;
  active.report.right_guesses += right;
  counts_.guessed_tokens += part.drafts;
  counts_.right_guesses += right;
  if (active.kind == kDrafted) {
    counts_.drafted_tokens += part.drafts;
    counts_.right_drafts += right;
  }
  if (part.drafts > 0) {
    active.record.saw(active.kind, std::min(part.drafts, right + 1), right);
  } else {
    active.record.saw_none();
  }
  const bool ended = active.reply.stopped() != StopReason::none;
  if (ended) drop_ahead();
  if (!ahead_) (void)cache.truncate(active.sequence, std::min(fed + right, active.known()));
  if (const auto taken = active.reply.tokens().subspan(before); !taken.empty()) {
    report_logits(active, taken, first_row);
    active.request.on_tokens(taken);
  }
  if (!text.empty()) active.request.on_text(text);
  if (ended) return end(active);
  remember(active, false);
}

void Engine::remember(Active& active, bool last_too) {
  if (!options_.reuse_prefixes) return;
  const std::int64_t length = settled_length(active);
  if (!last_too && length / kPageTokens == active.kept_pages) return;
  active.kept_pages = length / kPageTokens;
  prefixes_.keep(active.sequence, active.reply.context().first(static_cast<std::size_t>(length)),
                 last_too);
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
  if (draft_) draft_->leave(active.sequence);
  session_.cache().clear(active.sequence);
  taken_[static_cast<std::size_t>(active.sequence)] = false;
  active.sequence = -1;
}

}  // namespace leq
