#include "engine/speculation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr double kNewShare = 0.08;  // weight of the last draft in the moving mean
// With each token sampled without a draft, the estimated share of right drafts moves by this
// fraction towards its initial value. If draft tokens fail, about one token in 40 gets a new draft.
constexpr double kForgets = 0.0025;
constexpr double kLeastGain = 1.02;  // least speedup for which draft tokens are used

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

void DraftRecord::saw(DraftKind kind, std::int64_t checked, std::int64_t right) {
  double& share = right_share_[kind];
  for (std::int64_t i = 0; i < checked; ++i) {
    share += kNewShare * ((i < right ? 1.0 : 0.0) - share);
  }
}

void DraftRecord::saw_none() {
  for (double& share : right_share_) share += kForgets * (kFirstShare - share);
}

namespace {

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

}  // namespace

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

DraftPlanner fixed_drafts(std::int64_t count) {
  return [count](std::span<const DraftOffer> offers, const StepCosts&, const StepCosts&) {
    std::vector<DraftCount> counts;
    for (const DraftOffer& offer : offers) {
      const bool drafted = offer.draft > 0;
      counts.push_back({std::min(count, drafted ? offer.draft : offer.found), drafted});
    }
    return counts;
  };
}

}  // namespace leq
