#include "engine/speculation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "format/leq_layout.h"
#include "model/memory_plan.h"

namespace leq {
namespace {

constexpr double kNewShare = 0.08;  // weight of the last draft in the moving mean
// With each token sampled without a draft, the estimated share of right drafts moves by this
// fraction towards its initial value. If draft tokens fail, about one token in 40 gets a new draft.
constexpr double kShareDecay = 0.0025;
constexpr double kLeastGain = 1.02;  // least speedup for which draft tokens are used

// A possible draft token of a writer: the n-th one is right with probability share^n.
struct Candidate {
  double likely = 0;
  std::size_t writer = 0;
};

// Expected number of right tokens among `most` draft tokens.
double expected_tokens(double share, std::int64_t most) {
  double likely = 1, tokens = 0;
  for (std::int64_t i = 0; i < most; ++i) tokens += likely *= share;
  return tokens;
}

struct RatedPlan {
  double rate = 0;  // tokens per second
  std::vector<DraftCount> counts;
};

// The best plan in which a draft model makes up to `drafts` tokens for each writer, if these are
// worth more than drafts found in the text. A step's time depends only on its number of rows, so
// the most probable draft tokens of all writers are chosen, as long as they raise the token rate.
RatedPlan plan_with(std::span<const DraftOffer> offers, const StepCosts& costs,
                    const StepCosts& draft, std::int64_t drafts) {
  RatedPlan plan;
  plan.counts.resize(offers.size());
  std::vector<Candidate> candidates;
  std::int64_t drafting = 0;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const DraftOffer& offer = offers[i];
    const std::int64_t made = std::min(drafts, offer.draft);
    const bool drafted =
        expected_tokens(offer.draft_share, made) > expected_tokens(offer.found_share, offer.found);
    plan.counts[i].drafted = drafted;
    drafting += drafted ? 1 : 0;
    double likely = 1;
    for (std::int64_t k = 0; k < (drafted ? made : offer.found); ++k) {
      candidates.push_back({likely *= drafted ? offer.draft_share : offer.found_share, i});
    }
  }
  std::ranges::stable_sort(candidates, std::ranges::greater(), &Candidate::likely);
  const double drafting_seconds = static_cast<double>(drafts) * draft.seconds(drafting);
  const std::int64_t writers = std::ssize(offers);
  auto tokens = static_cast<double>(writers);
  std::size_t best = 0;
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    tokens += candidates[k].likely;
    const double seconds =
        costs.seconds(writers + static_cast<std::int64_t>(k) + 1) + drafting_seconds;
    if (tokens / seconds <= plan.rate) continue;
    plan.rate = tokens / seconds;
    best = k + 1;
  }
  for (std::size_t k = 0; k < best; ++k) ++plan.counts[candidates[k].writer].drafts;
  return plan;
}

constexpr std::int64_t kMaxUnread = 64;  // unread hidden states per sequence without drafts

std::string piece_of(const Tokenizer& tokenizer, Token id) {
  return static_cast<std::size_t>(id) < tokenizer.size() ? tokenizer.decode({{id}}, true)
                                                         : std::string();
}

}  // namespace

NgramProposer::Proposal NgramProposer::propose(std::span<const Token> context, std::int64_t most) {
  // Stores for each n-gram the position after its last occurrence. The n-gram at the end of the
  // context is stored once another token follows it.
  for (; seen_ < context.size(); ++seen_) {
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      if (seen_ < kLengths[i]) continue;
      const auto run = context.subspan(seen_ - kLengths[i], kLengths[i]);
      after_[i][checksum(std::as_bytes(run))] = seen_;
    }
  }
  for (std::size_t i = 0; i < kLengths.size(); ++i) {
    if (context.size() < kLengths[i]) continue;
    const auto run = context.last(kLengths[i]);
    const auto found = after_[i].find(checksum(std::as_bytes(run)));
    if (found == after_[i].end()) continue;
    const auto next = context.subspan(found->second);
    return {next.first(std::min(next.size(), static_cast<std::size_t>(most))), i};
  }
  return {};
}

void DraftRecord::add(DraftKind kind, std::int64_t checked, std::int64_t right) {
  double& share = right_share_[kind];
  for (std::int64_t i = 0; i < checked; ++i) {
    share += kNewShare * ((i < right ? 1.0 : 0.0) - share);
  }
}

void DraftRecord::add_none() {
  for (double& share : right_share_) share += kShareDecay * (kFirstShare - share);
}

std::vector<DraftCount> plan_draft_tokens(std::span<const DraftOffer> offers,
                                          const StepCosts& costs, const StepCosts& draft) {
  RatedPlan best;
  best.counts.resize(offers.size());
  const double alone = costs.seconds(std::ssize(offers));
  if (alone <= 0) return best.counts;  // costs of steps are unknown: none was measured yet
  best.rate = kLeastGain * static_cast<double>(offers.size()) / alone;
  std::int64_t most = 0;
  for (const DraftOffer& offer : offers) most = std::max(most, offer.draft);
  for (std::int64_t drafts = 0; drafts <= most; ++drafts) {
    RatedPlan plan = plan_with(offers, costs, draft, drafts);
    if (plan.rate > best.rate) best = std::move(plan);
  }
  for (DraftCount& count : best.counts) count.drafted = count.drafted && count.drafts > 0;
  return best.counts;
}

void require_same_vocabulary(const Tokenizer& tokenizer, std::string_view model,
                             const Tokenizer& draft_tokenizer, std::string_view draft) {
  const std::size_t ids = std::max(tokenizer.size(), draft_tokenizer.size());
  for (std::size_t i = 0; i < ids; ++i) {
    const auto id = static_cast<Token>(i);
    const std::string piece = piece_of(tokenizer, id), other = piece_of(draft_tokenizer, id);
    require(piece == other, draft, ": token ", id, " is '", printable(other), "', in ", model,
            " it is '", printable(piece),
            "'; a draft model needs the same vocabulary: take a smaller model of the same family");
  }
}

RunLimits draft_limits(const RunLimits& limits, const ModelConfig& draft) {
  RunLimits own = limits;
  const std::int64_t each =
      limits.sequence_context > 0 ? limits.sequence_context : limits.context / limits.sequences;
  own.sequence_context = std::min(each, draft.context);
  own.context = std::min(limits.context, draft.context * limits.sequences);
  own.output_tokens = limits.sequences;
  return resolve_limits(own, draft);
}

MemoryPlan plan_mtp(const Model& model, const RunLimits& limits, const Layout& layout) {
  const auto find = [&](std::string_view name) { return model.file().find(name); };
  const MemoryPlanner planner(mtp_tensors(find), model.file().name(), *model.mtp(), 0, layout,
                              place_of(*model.mtp(), 0, 1));
  return planner.plan(draft_limits(limits, *model.mtp()));
}

DraftModel::DraftModel(Session& session, std::int64_t vocabulary)
    : session_(session),
      vocabulary_(vocabulary),
      prefixes_(session.state()),
      fed_(static_cast<std::size_t>(session.limits().sequences)),
      reads_hidden_(session.transformer().config().reads_hidden),
      width_(static_cast<std::size_t>(session.transformer().config().width)),
      hidden_(fed_.size()) {
  const auto online = session.transformer().online();
  require(online.empty(), "the draft model: ", online.empty() ? "" : online[0].linear->name,
          " has act online, which remembers wrong draft tokens; quantize it with ", Setting{"act"},
          " row");
}

// An MTP head never reads the first token, since it needs the hidden state of the token before.
std::span<const Token> DraftModel::text_of(std::span<const Token> tokens) const {
  return reads_hidden_ && !tokens.empty() ? tokens.subspan(1) : tokens;
}

void DraftModel::record_hidden(std::int32_t sequence, std::int64_t position,
                               std::span<const float> rows) {
  HiddenRows& known = hidden_[static_cast<std::size_t>(sequence)];
  const auto count = static_cast<std::int64_t>(known.rows.size() / width_);
  if (count == 0 || position > known.first + count) known = {position, {}};
  // Skips the rows that are stored already, because the large model may be fed a token twice.
  const auto seen = static_cast<std::size_t>(
      known.first + static_cast<std::int64_t>(known.rows.size() / width_) - position);
  const auto next = rows.subspan(std::min(rows.size(), seen * width_));
  known.rows.insert(known.rows.end(), next.begin(), next.end());
  // Limits the number of unread rows, because the head may be unable to read them for a long time.
  const auto most = session_.limits().batch_tokens + kMaxUnread;
  drop_first(known, static_cast<std::int64_t>(known.rows.size() / width_) - most);
}

bool DraftModel::lags(std::int32_t sequence) const {
  const HiddenRows& known = hidden_[static_cast<std::size_t>(sequence)];
  return static_cast<std::int64_t>(known.rows.size() / width_) > kMaxUnread;
}

void DraftModel::drop_first(HiddenRows& known, std::int64_t rows) const {
  if (rows <= 0) return;
  known.rows.erase(known.rows.begin(),
                   known.rows.begin() + rows * static_cast<std::int64_t>(width_));
  known.first += rows;
}

// Appends the large model's hidden states for the part's tokens, from text position `from` on. They
// are unknown, and zeros are used, for tokens that the large model took from its prefix cache.
void DraftModel::add_hidden(const Part& part, std::int64_t from) {
  const std::size_t at = batch_hidden_.size();
  batch_hidden_.resize(at + static_cast<std::size_t>(part.feed) * width_);
  if (!part.hidden.empty()) {
    std::ranges::copy(part.hidden, batch_hidden_.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  }
  const HiddenRows& known = hidden_[static_cast<std::size_t>(part.sequence)];
  const auto count = static_cast<std::int64_t>(known.rows.size() / width_);
  for (std::int64_t i = 0; i < part.feed; ++i) {
    const std::int64_t row = from + i - known.first;
    if (row < 0 || row >= count) continue;
    std::copy_n(known.rows.begin() + row * static_cast<std::int64_t>(width_), width_,
                batch_hidden_.begin() +
                    static_cast<std::ptrdiff_t>(at + static_cast<std::size_t>(i) * width_));
  }
}

// Drops the stored rows of cached tokens, except the last one, whose token may be fed again.
void DraftModel::drop_read(std::int32_t sequence) {
  HiddenRows& known = hidden_[static_cast<std::size_t>(sequence)];
  const auto count = static_cast<std::int64_t>(known.rows.size() / width_);
  const std::int64_t read =
      std::clamp<std::int64_t>(std::ssize(fed(sequence)) - 1 - known.first, 0, count);
  drop_first(known, read);
}

// Sets the sequence's cache to the longest cached prefix of `tokens` that leaves at least one token
// to feed, because a step is needed for logits.
void DraftModel::begin(std::int32_t sequence, std::span<const Token> tokens) {
  std::vector<Token>& held = fed(sequence);
  const std::span<const Token> all = tokens.first(tokens.size() - 1);
  const std::int64_t common =
      session_.state().restore(sequence, std::ranges::mismatch(held, all).in1 - held.begin());
  held.resize(static_cast<std::size_t>(common));
  if (common > 0) return;
  const PrefixCache::Match found = prefixes_.find(all, true);
  session_.state().adopt(sequence, found.prefix());
  held.assign(all.begin(), all.begin() + found.tokens);
}

// Returns nullopt if the sequence cannot be fed, because no page is free, a token is not in this
// model's vocabulary, or the text exceeds its context.
std::optional<DraftModel::Part> DraftModel::part_of(std::int32_t sequence,
                                                    std::span<const Token> tokens,
                                                    std::int64_t more, std::int64_t left) {
  tokens = text_of(tokens);
  const std::int64_t most = session_.transformer().limits().context;
  if (tokens.empty() || std::ssize(tokens) + more > most) return std::nullopt;
  begin(sequence, tokens);
  const KvCache& cache = session_.cache();
  const std::int64_t length = cache.length(sequence);
  const std::int64_t missing = std::ssize(tokens) - length;
  const std::int64_t feed = std::min(missing, left);
  if (feed == 0) return std::nullopt;
  const auto next =
      tokens.subspan(static_cast<std::size_t>(length), static_cast<std::size_t>(feed));
  const std::int64_t vocabulary = session_.transformer().config().vocab;
  if (std::ranges::any_of(next, [&](Token id) { return id >= vocabulary; })) return std::nullopt;
  const std::int64_t needed = cache.pages_to_append(sequence, feed + more);
  prefixes_.make_free(pages_ + needed);
  if (cache.free_pages() < pages_ + needed) return std::nullopt;
  pages_ += needed;
  prefixes_.make_states_free(session_.limits().sequences);
  return Part{sequence, next, feed, feed == missing};
}

// Feeds the parts. `want` selects the rows of logits; a part that leaves tokens unfed gets none.
bool DraftModel::forward(std::span<const Part> parts, Batch::Want want) {
  batch_.clear();
  batch_hidden_.clear();
  for (const Part& part : parts) {
    if (reads_hidden_) add_hidden(part, std::ssize(fed(part.sequence)));
    batch_.add(part.sequence, part.tokens.data(), part.feed, part.whole ? want : Batch::Want::none);
  }
  try {
    Transformer& transformer = session_.transformer();
    logits_ = reads_hidden_ ? &transformer.forward(batch_, session_.state(), batch_hidden_)
                            : &transformer.forward(batch_, session_.state());
  } catch (const Error& error) {
    disable(error);
    return false;
  }
  for (const Part& part : parts) {
    std::vector<Token>& held = fed(part.sequence);
    const std::size_t before = held.size();
    held.insert(held.end(), part.tokens.begin(), part.tokens.end());
    if (reads_hidden_ && part.hidden.empty()) drop_read(part.sequence);
    if (held.size() / kPageTokens > before / kPageTokens) {
      prefixes_.keep(part.sequence, held, false, false);
    }
  }
  return true;
}

void DraftModel::follow(std::span<const Reader> readers) {
  if (error_) return;
  pages_ = 0;
  std::int64_t left = session_.limits().batch_tokens;
  std::vector<Part> parts;
  for (const Reader& reader : readers) {
    const auto part = part_of(reader.sequence, reader.tokens, 0, left);
    if (!part) continue;
    left -= part->feed;
    parts.push_back(*part);
  }
  if (!parts.empty()) forward(parts, Batch::Want::none);
}

void DraftModel::draft(std::span<Writer> writers) {
  if (error_) return;
  drafting_.clear();
  write(writers);
  if (!reads_hidden_ || error_) return;
  // Removes draft tokens, whose cached rows an MTP head computed from its own hidden states.
  for (const auto& [sequence, tokens] : drafting_) {
    (void)session_.state().restore(sequence, static_cast<std::int64_t>(tokens));
    fed(sequence).resize(tokens);
  }
}

void DraftModel::write(std::span<Writer> writers) {
  std::vector<Writer*> drafting;
  std::vector<Part> parts = first_parts(writers, drafting);
  if (parts.empty()) return;
  std::int64_t others = -std::ssize(drafting);  // rows beyond one per drafting writer
  for (const Part& part : parts) others += part.feed;
  while (!parts.empty()) {
    const Stopwatch watch;
    if (!forward(parts, Batch::Want::last)) return;
    // Takes a checkpoint at the end of each reply, because the draft tokens after it may be wrong.
    if (drafting_.empty()) {
      for (const Part& part : parts) {
        session_.state().only_checkpoint(part.sequence);
        drafting_.emplace_back(part.sequence, fed(part.sequence).size());
      }
    }
    if (!draw(drafting)) return;
    costs_.record(std::ssize(drafting), std::exchange(others, 0), watch.seconds());
    const std::vector<std::size_t> rows = take_draws(drafting);
    parts = next_parts(drafting, rows);
  }
}

// Parts with the tokens that each writer lacks. Adds writers that can draft now to `drafting`.
std::vector<DraftModel::Part> DraftModel::first_parts(std::span<Writer> writers,
                                                      std::vector<Writer*>& drafting) {
  pages_ = 0;
  std::int64_t left = session_.limits().batch_tokens;
  std::vector<Part> parts;
  for (Writer& writer : writers) {
    if (writer.most == 0) continue;
    const auto part = part_of(writer.sequence, writer.reply->context(), writer.most, left);
    if (!part) continue;
    left -= part->feed;
    parts.push_back(*part);
    if (part->whole) drafting.push_back(&writer);
  }
  return parts;
}

// Stores the drawn tokens and drops finished writers; returns output rows of the other writers.
std::vector<std::size_t> DraftModel::take_draws(std::vector<Writer*>& drafting) {
  std::size_t row = 0;
  std::vector<std::size_t> rows;
  std::erase_if(drafting, [&](Writer* writer) {
    const std::size_t own = row++;
    Token drawn = drawn_[own];
    if (drawn < 0) return true;
    const std::size_t index = writer->drafts.size();
    if (index < writer->script.size()) drawn = writer->script[index];
    writer->drafts.push_back(drawn);
    const bool ends = std::ssize(writer->drafts) >= writer->most || writer->reply->ends_with(drawn);
    if (!ends) rows.push_back(own);
    return ends;
  });
  return rows;
}

// Parts with each writer's last draft token and, for an MTP head, the state of the token before.
std::vector<DraftModel::Part> DraftModel::next_parts(std::span<Writer* const> drafting,
                                                     std::span<const std::size_t> rows) {
  std::vector<Part> parts;
  if (drafting.empty()) return parts;
  if (reads_hidden_) {
    own_hidden_.resize(batch_.outputs.size() * width_);
    try {
      session_.transformer().normed_hidden(batch_.outputs, own_hidden_);
    } catch (const Error& error) {
      disable(error);
      return parts;
    }
  }
  for (std::size_t i = 0; i < drafting.size(); ++i) {
    const Writer& writer = *drafting[i];
    parts.push_back({writer.sequence, std::span(writer.drafts).last(1), 1, true});
    if (!reads_hidden_) continue;
    parts.back().hidden = std::span(own_hidden_).subspan(rows[i] * width_, width_);
  }
  return parts;
}

// Draws one token from each row of logits with the sampling settings of its writer's reply.
bool DraftModel::draw(std::span<Writer* const> writers) {
  const std::int64_t own = session_.transformer().config().vocab;
  requests_.clear();
  changes_.assign(writers.size(), {});
  masks_.assign(writers.size(), {});
  for (std::size_t i = 0; i < writers.size(); ++i) {
    SampleRequest request = writers[i]->reply->request(writers[i]->drafts);
    if (own != vocabulary_) {
      for (const LogitChange& change : request.changes) {
        if (change.id < own) changes_[i].push_back(change);
      }
      for (std::int64_t id = vocabulary_; id < own; ++id) {
        changes_[i].push_back(banned_token(static_cast<std::int32_t>(id)));
      }
      request.changes = changes_[i];
      if (!request.allowed.empty()) {
        masks_[i].assign(request.allowed.begin(), request.allowed.end());
        masks_[i].resize(static_cast<std::size_t>(own + 63) / 64);
        request.allowed = masks_[i];
      }
    }
    requests_.push_back(request);
  }
  drawn_.resize(requests_.size());
  try {
    Backend& backend = session_.transformer().backend();
    if (requests_.empty()) {
      backend.synchronize();
    } else {
      backend.sample(*logits_, requests_, drawn_);
    }
  } catch (const Error& error) {
    disable(error);
    return false;
  }
  return true;
}

void DraftModel::leave(std::int32_t sequence) {
  prefixes_.keep(sequence, fed(sequence), true);
  session_.state().drop(sequence);
  fed(sequence).clear();
  hidden_[static_cast<std::size_t>(sequence)] = {};
}

void DraftModel::disable(const Error& error) {
  error_ = error;
  for (std::size_t i = 0; i < fed_.size(); ++i) {
    session_.state().drop(static_cast<std::int32_t>(i));
    fed_[i].clear();
  }
}

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
    const std::int64_t most = take_expected(writer) ? 0 : max_drafts(writer);
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
std::int64_t Speculator::max_drafts(const Writer& writer) const {
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

}  // namespace leq
