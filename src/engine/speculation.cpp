#include "engine/speculation.h"

#include <algorithm>

#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr double kNewShare = 0.08;  // of the last guess in the moving mean
constexpr double kForgets =
    0.005;  // towards what is expected, with each token that was not guessed
constexpr double kLeastGain = 1.02;  // what a guess that pays gives

}  // namespace

NgramProposer::Proposal NgramProposer::propose(std::span<const Token> context, std::int64_t most) {
  // A run of tokens points to what came after its last time, so the last run of all is entered
  // only when something has come after it.
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

std::span<const Token> Speculator::guess(std::span<const Token> context, std::int64_t most,
                                         const StepCosts& costs, std::int64_t outputs) {
  const auto [tokens, kind] = proposer_.propose(context, std::max<std::int64_t>(most, 0));
  kind_ = kind;
  const std::int64_t count =
      guesses_that_pay(right_share_[kind], costs, outputs, std::ssize(tokens));
  return tokens.first(static_cast<std::size_t>(count));
}

void Speculator::saw(std::int64_t checked, std::int64_t right) {
  double& share = right_share_[kind_];
  for (std::int64_t i = 0; i < checked; ++i) {
    share += kNewShare * ((i < right ? 1.0 : 0.0) - share);
  }
  if (checked > 0) return;
  for (double& kind : right_share_) kind += kForgets * (kExpected - kind);
}

std::int64_t guesses_that_pay(double share, const StepCosts& costs, std::int64_t outputs,
                              std::int64_t most) {
  const double alone = costs.seconds(outputs);
  if (alone <= 0) return 0;  // nothing is known yet
  std::int64_t best = 0;
  double best_rate = kLeastGain / alone, tokens = 1, likely = 1;
  for (std::int64_t k = 1; k <= most; ++k) {
    likely *= share;
    tokens += likely;
    const double rate = tokens / costs.seconds(outputs + k);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = k;
  }
  return best;
}

}  // namespace leq
