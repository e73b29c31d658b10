#include "engine/speculator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace leq {

Speculator::Speculator(Session& session, const EngineOptions& options)
    : session_(session),
      options_(options),
      vocabulary_(static_cast<std::size_t>(session.transformer().config().vocab)) {
  if (options.draft == nullptr || !options.speculate) return;
  ensure(options.draft->limits().sequences >= session.limits().sequences,
         "engine: a draft model with fewer sequences");
  draft_.emplace(*options.draft, session.transformer().config().vocab);
}

void Speculator::propose(std::span<const Writer> writers, const StepCosts& costs) {
  std::vector<DraftOffer> offers;
  std::vector<NgramProposer::Proposal> found;
  for (const Writer& writer : writers) {
    Drafts& own = *writer.drafts;
    own.tokens.clear();
    const std::int64_t most = take_expected(writer) ? 0 : most_found(writer);
    found.push_back(own.proposer.propose(writer.reply->context(), options_.find_drafts ? most : 0));
    offers.push_back({std::ssize(found.back().tokens), own.record.right_share(found.back().kind),
                      drafts() ? most : 0, own.record.right_share(kDrafted)});
  }
  const std::vector<DraftCount> counts =
      options_.plan_drafts(offers, costs, draft_ ? draft_->costs() : StepCosts());
  std::vector<DraftModel::Writer> drafting;
  for (std::size_t i = 0; i < writers.size(); ++i) {
    Drafts& own = *writers[i].drafts;
    if (!own.tokens.empty()) continue;  // set by take_expected
    own.kind = counts[i].drafted ? kDrafted : found[i].kind;
    if (counts[i].drafted) {
      drafting.push_back(
          {writers[i].sequence, writers[i].reply, counts[i].drafts, script_of(writers[i])});
      continue;
    }
    const auto first = found[i].tokens.first(static_cast<std::size_t>(counts[i].drafts));
    own.tokens.assign(first.begin(), first.end());
  }
  if (drafting.empty()) return;
  draft_->draft(drafting);
  auto drafted = drafting.begin();
  for (std::size_t i = 0; i < writers.size(); ++i) {
    if (counts[i].drafted) writers[i].drafts->tokens = std::move((drafted++)->drafts);
  }
}

// 0 with Mirostat, because its draws depend on each other. A reply's last token is never drafted.
std::int64_t Speculator::most_found(const Writer& writer) const {
  if (writer.request->sampling.mirostat != 0) return 0;
  const std::int64_t most = std::clamp<std::int64_t>(options_.max_draft_tokens, 0, kMaxDraftTokens);
  return std::clamp<std::int64_t>(writer.reply->tokens_left() - 1, 0, most);
}

// Takes draft tokens from EngineRequest::expected, as long as the reply equals that text.
bool Speculator::take_expected(const Writer& writer) const {
  const std::vector<Token>& expected = writer.request->expected;
  const std::span<const Token> written = writer.reply->tokens();
  if (writer.request->sampling.mirostat != 0 || expected.size() <= written.size() ||
      !std::ranges::equal(written, std::span(expected).first(written.size()))) {
    return false;
  }
  const RunLimits& limits = session_.limits();
  const std::int64_t left =
      std::min({writer.reply->tokens_left(), limits.output_tokens, limits.batch_tokens}) - 1;
  const auto next = std::span(expected).subspan(written.size());
  const auto count =
      std::min(next.size(), static_cast<std::size_t>(std::max<std::int64_t>(left, 0)));
  writer.drafts->tokens.assign(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(count));
  writer.drafts->kind = kExpectedReply;
  return !writer.drafts->tokens.empty();
}

// Draft tokens for a replayed reply: the reply's own tokens, of which a random part is replaced by
// wrong ones so that a share of `draft_share` is right.
std::vector<Token> Speculator::script_of(const Writer& writer) const {
  const Replay& replay = writer.request->replay;
  const std::size_t known = writer.reply->tokens().size();
  std::vector<Token> script;
  for (std::size_t i = known; i < replay.tokens.size() && i < known + kMaxDraftTokens; ++i) {
    const double dice = Random(i).uniform();
    const Token other =
        static_cast<Token>(static_cast<std::size_t>(replay.tokens[i] + 1) % vocabulary_);
    script.push_back(dice < replay.draft_share ? replay.tokens[i] : other);
  }
  return script;
}

void Speculator::saw(std::int32_t sequence, std::int64_t position, std::span<const float> rows) {
  draft_->saw(sequence, position, rows);
}

void Speculator::follow(std::span<const DraftModel::Reader> prompts) {
  if (draft_) draft_->follow(prompts);
}

void Speculator::leave(std::int32_t sequence) {
  if (draft_) draft_->leave(sequence);
}

const Error* Speculator::draft_error() const {
  return draft_ && draft_->error() ? &*draft_->error() : nullptr;
}

}  // namespace leq
