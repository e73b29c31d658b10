// Steps ahead of the host: if a single reply is generated, its next step is launched before the
// host has the token that this step feeds, because the device can read the token from its own
// memory. The host's work on a token (text, stop rules, callbacks) then costs no device time.
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "engine/engine_active.h"

namespace leq {

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
  const Token fed = drawn_id(0);
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
  land_ahead();
  const Ahead landed = std::exchange(ahead_, std::move(next)).value();
  if (landed.drawn >= 0) {
    return take(active, {active.id, 1, 0, true}, std::span(&landed.drawn, 1), *landed.logits, 0);
  }
  drop_ahead();
  forget_last(active);
  active.one_by_one = true;
}

// Waits for the pending draw, so that its error is not reported to another user of the session.
void Engine::land_ahead() {
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
  land_ahead();
  const Active& active = *active_.at(ahead_->id);
  ahead_.reset();
  forget_last(active);
}

// Removes the last fed token, which is not part of the reply, from the cache.
void Engine::forget_last(const Active& active) {
  const SequenceState state = session_.state();
  (void)state.restore(active.sequence, state.length(active.sequence) - 1);
}

// Number of cached positions whose tokens have reached the host.
std::int64_t Engine::settled_length(const Active& active) const {
  return session_.cache().length(active.sequence) - (ahead_ ? 1 : 0);
}

}  // namespace leq
