// One step over a batch: feeds tokens, draws the next tokens and adds valid draws to the replies.
#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/checks.h"
#include "base/error.h"
#include "engine/engine_active.h"

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
  } catch (const Error& error) {  // an error of the device, not of a request
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
  const std::int64_t before = settled_length(active) - part.drafts - part.tokens;
  speculator_.saw(
      active.sequence, before,
      std::span(hidden_).subspan(static_cast<std::size_t>(first * width),
                                 static_cast<std::size_t>((part.tokens + right) * width)));
}

// Row i of the part's logits is the row from which taken[i] was drawn.
void Engine::report_logits(const Active& active, std::span<const Token> taken,
                           std::int64_t first_row) {
  if (!active.request.on_logits) return;
  const auto first = static_cast<std::size_t>(first_row) * vocabulary_;
  active.request.on_logits(taken,
                           std::span(raw_logits_).subspan(first, taken.size() * vocabulary_));
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
    active.drafts.record.saw(active.drafts.kind, std::min(checked, right + 1), right);
  } else {
    active.drafts.record.saw_none();
  }
}

// Adds the drawn tokens to the reply, up to and including the first that differs from its draft.
void Engine::take(Active& active, const Feed& part, std::span<const Token> drawn,
                  const Rows& logits, std::int64_t first_row, std::int64_t first_in_batch) {
  const std::int64_t fed = settled_length(active) - part.drafts;
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
    report_logits(active, taken, first_row);
    active.request.on_tokens(taken);
  }
  if (!text.empty()) active.request.on_text(text);
  if (ended) return end(active);
  remember(active, false);
}

}  // namespace leq
