#include "backend/sample_cuts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/fixed_log.h"
#include "base/float_math.h"

namespace leq {
namespace {

__extension__ using Wide = unsigned __int128;

// Masses of the candidates at this temperature, and the sum of these masses.
struct Masses {
  std::vector<std::uint64_t> of;
  std::uint64_t total = 0;
};
Masses masses(const std::vector<SampleCandidate>& candidates, float temperature) {
  Masses all;
  all.of.reserve(candidates.size());
  const float largest = candidates.front().logit;
  for (const SampleCandidate& c : candidates) {
    all.of.push_back(mass_of(leq_exp((c.logit - largest) / temperature)));
    all.total += all.of.back();
  }
  return all;
}

// The distance of a logit below the largest, in units of 2^-16, rounded down; at most 2^15.
constexpr double kDistanceUnit = 0x1p-16;
std::uint64_t whole_distance(float largest, float logit) {
  return static_cast<std::uint64_t>(std::min(largest - logit, 0x1p15f) * 0x1p16f);
}

}  // namespace

void keep_top_n_sigma(std::vector<float>& logits, float n) {
  const float largest = *std::ranges::max_element(logits);
  if (largest == kNoLogit) return;
  Wide count = 0, sum = 0, squares = 0;
  for (const float logit : logits) {
    if (logit == kNoLogit) continue;
    const std::uint64_t distance = whole_distance(largest, logit);
    ++count;
    sum += distance;
    squares += Wide{distance} * distance;
  }
  // n^2 times the variance, exactly: squares are below 2^85, counts below 2^23.
  const Wide variance = count * squares - sum * sum;
  const double sigma =
      std::sqrt(static_cast<double>(variance)) / static_cast<double>(count) * kDistanceUnit;
  const double most = double{n} * sigma;
  for (float& logit : logits) {
    if (double{largest} - double{logit} > most) logit = kNoLogit;
  }
}

void keep_typical(std::vector<SampleCandidate>& candidates, float share) {
  const Masses all = masses(candidates, 1);
  const float largest = candidates.front().logit;
  // Surprise minus its expectation equals a logit's distance minus the expected distance.
  Wide sum = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    sum += Wide{all.of[i]} * whole_distance(largest, candidates[i].logit);
  }
  const double expected = static_cast<double>(sum) / static_cast<double>(all.total) * kDistanceUnit;
  const auto score = [&](std::size_t i) {
    return std::abs((double{largest} - double{candidates[i].logit}) - expected);
  };
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, score);
  const std::uint64_t goal = top_p_goal(share, all.total);
  std::uint64_t reached = 0;
  std::size_t kept = 0;
  do reached += all.of[order[kept++]];
  while (reached < goal);
  order.resize(kept);
  std::ranges::sort(order);
  std::vector<SampleCandidate> typical;
  typical.reserve(kept);
  for (const std::size_t i : order) typical.push_back(candidates[i]);
  candidates = std::move(typical);
}

void leave_out_top(std::vector<SampleCandidate>& candidates, const SampleRule& rule) {
  constexpr float kMostThreshold = 0.5f;  // at most one token is above it
  const bool falls = static_cast<float>(rule.coin >> 8) * 0x1p-24f < rule.xtc_probability;
  if (!falls || rule.xtc_threshold > kMostThreshold) return;
  const Masses all = masses(candidates, 1);
  const std::uint64_t least = std::max<std::uint64_t>(top_p_goal(rule.xtc_threshold, all.total), 1);
  std::size_t above = 0;
  while (above < all.of.size() && all.of[above] >= least) ++above;
  if (above < 2) return;
  candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(above - 1));
}

std::int32_t draw_mirostat(std::vector<SampleCandidate>& candidates, const SampleRule& rule,
                           double* surprise) {
  const Masses all = masses(candidates, rule.temperature);
  std::size_t kept = 1;
  // Equivalent to log2(total / mass) <= mu.
  const double least = static_cast<double>(all.total) * fixed_exp2(-rule.mirostat_mu);
  while (kept < all.of.size() && static_cast<double>(all.of[kept]) >= least) ++kept;
  const auto end = all.of.begin() + static_cast<std::ptrdiff_t>(kept);
  const std::uint64_t total = std::accumulate(all.of.begin(), end, std::uint64_t{0});
  const std::uint64_t goal = draw_goal(rule.random, total);
  std::uint64_t sum = all.of[0];
  std::size_t drawn = 0;
  while (sum < goal) sum += all.of[++drawn];
  if (surprise != nullptr) {
    *surprise = fixed_log2(static_cast<double>(total) / static_cast<double>(all.of[drawn]));
  }
  return candidates[drawn].id;
}

}  // namespace leq
