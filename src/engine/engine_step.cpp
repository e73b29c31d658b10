// One step over a batch: feeds tokens, draws the next tokens and adds valid draws to the replies.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "backend/checks.h"
#include "base/error.h"
#include "engine/engine.h"

namespace leq {

// Feeds the parts and draws tokens. If the whole batch fails, its parts are fed one by one, so that
// only the replies whose own part fails are ended.
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
    if (part.drafts > 0) session_.state().only_checkpoint(active.sequence);
    tokens.assign(1, known.back());
    tokens.insert(tokens.end(), active.drafts.tokens.begin(),
                  active.drafts.tokens.begin() + part.drafts);
    batch_.add(active.sequence, tokens.data(), std::ssize(tokens), Batch::Want::all);
  }
  Transformer& transformer = session_.transformer();
  const Rows* logits = nullptr;
  try {
    logits = &transformer.forward(batch_, session_.state());
  } catch (const Error& error) {
    if (parts.size() == 1) return fail(parts, error);
    for (const Feed& part : parts) run({part});
    return;
  }
  if (parts.size() == 1 && begin_ahead(parts[0], *logits)) return step_ahead();
  try {
    draw(parts, *logits);
    fetch_logits(parts, *logits);
    fetch_hidden();
    if (batch_.outputs.empty()) transformer.backend().synchronize();
    options_.check_step();
  } catch (const Error& error) {  // an error of the device, not of a request
    // The prefix cache must not reuse what the step computed.
    for (const Feed& part : parts) {
      const std::int32_t sequence = active_.at(part.id)->sequence;
      const std::int64_t before = session_.cache().length(sequence) - part.tokens - part.drafts;
      (void)session_.state().restore(sequence, before);
    }
    return fail(parts, error);
  }
  std::int64_t row = 0, first = 0;  // first row of the part in the logits, in the batch
  for (const Feed& part : parts) {
    const std::int64_t rows = part.draws ? 1 + part.drafts : 0;
    take(*active_.at(part.id), part, {drawn_.begin() + row, drawn_.begin() + row + rows}, *logits,
         row, first);
    row += rows;
    first += part.tokens + part.drafts;
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

// Draws a token per row of logits. Draws after a wrong draft token are not valid (see take).
void Engine::draw(const std::vector<Feed>& parts, const Rows& logits) {
  requests_.clear();
  changes_.clear();
  masks_.clear();
  changes_.reserve(batch_.outputs.size());  // reserved because requests point to the elements
  masks_.reserve(batch_.outputs.size());
  for (const Feed& part : parts) {
    if (!part.draws) continue;
    Active& active = *active_.at(part.id);
    const std::span<const Token> drafts = active.drafts.tokens;
    for (std::int64_t i = 0; i <= part.drafts; ++i) {
      SampleRequest request = active.reply.request(drafts.first(static_cast<std::size_t>(i)));
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

// Downloads the step's logits to the host if a request reads them.
void Engine::fetch_logits(const std::vector<Feed>& parts, const Rows& logits) {
  const bool wanted = std::ranges::any_of(parts, [&](const Feed& part) {
    return part.draws && active_.at(part.id)->request.on_logits;
  });
  if (!wanted) return;
  raw_logits_.resize(batch_.outputs.size() * vocabulary_);
  session_.transformer().backend().download(logits, std::ssize(batch_.outputs), raw_logits_);
}

// Downloads the hidden states of all rows of the step if a draft model reads them.
void Engine::fetch_hidden() {
  if (!speculator_.reads_hidden()) return;
  const ModelConfig& config = session_.transformer().config();
  std::vector<std::int32_t> rows(batch_.tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  hidden_.resize(rows.size() * static_cast<std::size_t>(config.width));
  session_.transformer().normed_hidden(rows, hidden_);
}

// Passes hidden states of the part's tokens and its `right` accepted drafts to the draft model.
void Engine::show_hidden(const Active& active, const Feed& part, std::int64_t first,
                         std::int64_t right) {
  if (!speculator_.reads_hidden()) return;
  const std::int64_t width = session_.transformer().config().width;
  const std::int64_t before = committed_length(active) - part.drafts - part.tokens;
  speculator_.draft_model()->record_hidden(
      active.sequence, before,
      std::span(hidden_).subspan(static_cast<std::size_t>(first * width),
                                 static_cast<std::size_t>((part.tokens + right) * width)));
}

// Reports prompt progress. `fed`: cached positions whose tokens were known before the step.
void Engine::count_prompt(Active& active, const Feed& part, std::int64_t fed) {
  const std::int64_t in_prompt = std::ssize(active.request.prompt);
  if (fed <= in_prompt) {
    active.report.fed_tokens += part.tokens;
    const std::int64_t all = in_prompt - active.report.cached_tokens;
    // After an eviction, cached tokens are fed again, so that this difference can be negative.
    active.request.on_prompt(std::max<std::int64_t>(0, all - (in_prompt - fed)), all);
  }
  counts_.prompt_tokens += part.tokens - (part.draws && fed > in_prompt ? 1 : 0);
  if (part.draws && fed > in_prompt) active.report.decoded_tokens += 1;
}

void Engine::count_drafts(Active& active, std::int64_t checked, std::int64_t right) {
  active.report.decoded_tokens += right;
  active.report.draft_tokens += checked;
  active.report.accepted_tokens += right;
  counts_.draft_tokens += checked;
  counts_.accepted_tokens += right;
  if (active.drafts.kind == kDrafted) {
    counts_.drafted_tokens += checked;
    counts_.right_drafts += right;
  }
  if (checked > 0) {
    active.drafts.record.add(active.drafts.kind, std::min(checked, right + 1), right);
  } else {
    active.drafts.record.add_none();
  }
}

// Adds the drawn tokens to the reply, up to and including the first that differs from its draft.
void Engine::take(Active& active, const Feed& part, std::span<const Token> drawn,
                  const Rows& logits, std::int64_t first_row, std::int64_t first_in_batch) {
  const std::int64_t fed = committed_length(active) - part.drafts;
  count_prompt(active, part, fed);
  if (!part.draws) {
    show_hidden(active, part, first_in_batch, 0);
    return remember(active, false);
  }

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
    const bool drafted =
        i < static_cast<std::size_t>(part.drafts) && active.drafts.tokens[i] == next;
    if (drafted) ++right;
    if (!drafted || active.reply.stopped() != StopReason::none) break;
  }
  count_drafts(active, part.drafts, right);
  show_hidden(active, part, first_in_batch, right);
  const bool ended = active.reply.stopped() != StopReason::none;
  if (ended) drop_ahead();
  if (!ahead_) {
    (void)session_.state().restore(active.sequence, std::min(fed + right, active.known()));
  }
  if (const auto taken = active.reply.tokens().subspan(before); !taken.empty()) {
    if (active.request.on_logits) {  // row i is the row from which taken[i] was drawn
      const auto first = static_cast<std::size_t>(first_row) * vocabulary_;
      active.request.on_logits(taken,
                               std::span(raw_logits_).subspan(first, taken.size() * vocabulary_));
    }
    active.request.on_tokens(taken);
  }
  if (!text.empty()) active.request.on_text(text);
  if (ended) return end(active);
  remember(active, false);
}

// Steps ahead of the host: if a single reply is generated, its next step is launched before the
// host has the token that this step feeds, because the device can read the token from its own
// memory. The host's work on a token (text, stop rules, callbacks) then costs no device time.

// Whether steps may run ahead: draws must depend only on the text's length, no caller may read
// logits, and no scale may move, because a discarded step would have changed it.
bool Engine::may_run_ahead(const Active& active) const {
  const EngineRequest& request = active.request;
  return options_.run_ahead && active_.size() == 1 && session_.ranks() == 1 &&
         !speculator_.drafts() && session_.transformer().online().empty() && !active.one_by_one &&
         !active.reply.reads_text() && !request.on_logits && request.replay.tokens.empty();
}

// Whether draft tokens after the host's last token are worth verifying in the next step.
bool Engine::drafts_next(Active& active) {
  if (!options_.speculate) return false;
  Job job;
  job.id = active.id;
  Job* const jobs[] = {&job};
  propose_drafts(jobs);
  return job.drafts > 0;
}

// Starts an asynchronous draw after a step of one token; false if the draw must be synchronous.
bool Engine::begin_ahead(const Feed& part, const Rows& logits) {
  Active& active = *active_.at(part.id);
  if (part.tokens != 1 || !part.draws || part.drafts > 0 || active.reply.tokens_left() < 2 ||
      !may_run_ahead(active)) {
    return false;
  }
  ahead_ = draw_ahead(active, logits, {});
  return ahead_.has_value();
}

// `fed_since`: fed tokens that the host does not have yet. The draw does not read their values.
std::optional<Engine::Ahead> Engine::draw_ahead(Active& active, const Rows& logits,
                                                std::span<const Token> fed_since) {
  requests_.assign(1, active.reply.request(fed_since));
  auto drawing = session_.transformer().backend().begin_sample(logits, requests_);
  if (drawing == nullptr) return std::nullopt;
  return Ahead{active.id, std::move(drawing), 0, &logits};
}

// Launches the step that feeds the token being drawn. Returns nullopt if the reply must end with
// that token, if draft tokens may follow, if pages must be evicted, or if the launch fails (a
// synchronous step then reports the error).
std::optional<Engine::Ahead> Engine::begin_next(Active& active) {
  const bool is_there = ahead_->drawing != nullptr && ahead_->drawing->is_last();
  if (!is_there || !may_run_ahead(active) || active.reply.tokens_left() < 2 ||
      drafts_next(active)) {
    return std::nullopt;
  }
  KvCache& cache = session_.cache();
  const std::int64_t length = cache.length(active.sequence);
  const std::int64_t pages = cache.pages_to_append(active.sequence, 1);
  prefixes_.make_free(pages);
  prefixes_.make_states_free(1);
  session_.state().only_checkpoint(active.sequence);
  if (cache.free_pages() < pages) return std::nullopt;
  const Token fed = placeholder_id(0);
  batch_.clear();
  batch_.add(active.sequence, &fed, 1, Batch::Want::all);
  std::optional<Ahead> next;
  try {
    next = draw_ahead(active, session_.transformer().forward(batch_, session_.state()),
                      std::array{Token{0}});
  } catch (const Error&) {
  }
  if (next) ++counts_.steps_ahead;
  if (!next) (void)session_.state().restore(active.sequence, length);
  return next;
}

// Launches the next step, then waits for the token being drawn. If the draw failed, a synchronous
// step draws the token again and reports the error of that row.
void Engine::step_ahead() {
  Active& active = *active_.at(ahead_->id);
  std::optional<Ahead> next = begin_next(active);
  finish_ahead();
  const Ahead finished = std::exchange(ahead_, std::move(next)).value();
  if (finished.drawn >= 0) {
    return take(active, {active.id, 1, 0, true}, std::span(&finished.drawn, 1), *finished.logits,
                0);
  }
  drop_ahead();
  drop_last(active);
  active.one_by_one = true;
}

// Waits for the pending draw, so that its error is not reported to another user of the session.
void Engine::finish_ahead() {
  if (!ahead_ || ahead_->drawing == nullptr) return;
  try {
    ahead_->drawing->wait(std::span(&ahead_->drawn, 1));
  } catch (const Error&) {
    ahead_->drawn = kAllBanned;
  }
  ahead_->drawing.reset();
}

// Rolls back the step ahead if its token is not part of the reply or the reply was cancelled.
void Engine::drop_ahead() {
  if (!ahead_) return;
  finish_ahead();
  const Active& active = *active_.at(ahead_->id);
  ahead_.reset();
  drop_last(active);
}

// Removes the last fed token, which is not part of the reply, from the cache.
void Engine::drop_last(const Active& active) {
  const SequenceState state = session_.state();
  (void)state.restore(active.sequence, state.length(active.sequence) - 1);
}

// Number of cached positions whose tokens have reached the host.
std::int64_t Engine::committed_length(const Active& active) const {
  return session_.cache().length(active.sequence) - (ahead_ ? 1 : 0);
}

}  // namespace leq
