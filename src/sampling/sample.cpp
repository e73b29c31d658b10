// Sampling on the host (HostSampler), and the cuts of a row's candidates that it computes for every
// device (docs/sampling.md). Sums are sums of integers, so that no order of work changes them.
#include "sampling/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
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

// The number of candidates in the shortest prefix whose mass at this temperature is at least
// goal(total mass), which the total reaches.
template <class Goal>
std::size_t prefix(const std::vector<SampleCandidate>& candidates, float temperature,
                   const Goal& goal) {
  const float largest = candidates.front().logit;
  const auto mass = [&](const SampleCandidate& c) {
    return mass_of(leq_exp((c.logit - largest) / temperature));
  };
  std::uint64_t total = 0;
  for (const SampleCandidate& c : candidates) total += mass(c);
  const std::uint64_t wanted = goal(total);
  std::uint64_t sum = 0;
  std::size_t count = 0;
  do sum += mass(candidates[count++]);
  while (sum < wanted);
  return count;
}

// The distance of a logit below the largest, in units of 2^-16, rounded down; at most 2^15.
constexpr double kDistanceUnit = 0x1p-16;
std::uint64_t whole_distance(float largest, float logit) {
  return static_cast<std::uint64_t>(std::min(largest - logit, 0x1p15f) * 0x1p16f);
}

// Sets logits that are more than n standard deviations below the largest to kNoLogit.
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

// Locally typical sampling (Meister et al. 2023): keeps the fewest tokens, nearest in surprise to
// the expected surprise, that have this share of the probability. candidates[0] has a logit.
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

// XTC: if the row's random number is below xtc_probability, leaves out all tokens that have a
// probability of at least xtc_threshold, except the least probable of these.
void leave_out_top(std::vector<SampleCandidate>& candidates, const SampleRule& rule) {
  constexpr float kMaxThreshold = 0.5f;  // at most one token is above it
  const bool falls = static_cast<float>(rule.coin >> 8) * 0x1p-24f < rule.xtc_probability;
  if (!falls || rule.xtc_threshold > kMaxThreshold) return;
  const Masses all = masses(candidates, 1);
  const std::uint64_t least = std::max<std::uint64_t>(top_p_goal(rule.xtc_threshold, all.total), 1);
  std::size_t above = 0;
  while (above < all.of.size() && all.of[above] >= least) ++above;
  if (above < 2) return;
  candidates.erase(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(above - 1));
}

// Mirostat 2 (Basu et al. 2021): cuts at mirostat_mu, draws, returns the surprise.
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

// Sorts keys by their high halves in three stable passes of 11 bits. Low halves must already be in
// ascending order. `other` is scratch.
void radix_sort(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& other) {
  constexpr int kBits = 11;
  constexpr std::uint64_t kMask = (1u << kBits) - 1;
  other.resize(keys.size());
  for (int shift = 32; shift < 64; shift += kBits) {
    std::array<std::size_t, kMask + 1> places = {};
    for (const std::uint64_t key : keys) ++places[key >> shift & kMask];
    std::size_t start = 0;
    for (std::size_t& place : places) {
      const std::size_t count = place;
      place = start;
      start += count;
    }
    for (const std::uint64_t key : keys) other[places[key >> shift & kMask]++] = key;
    keys.swap(other);
  }
}

// Size of a block of logits; most blocks contain none of the best logits and are skipped.
constexpr std::size_t kBlock = 64;

using Lanes [[gnu::vector_size(16)]] = float;
using LaneBits [[gnu::vector_size(16)]] = std::int32_t;
constexpr std::size_t kLanes = sizeof(Lanes) / sizeof(float);

Lanes lanes_at(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

// The largest of some logits (kNoLogit if there are none), and whether one is NaN or +infinity.
struct BlockSummary {
  float largest = kNoLogit;
  bool bad = false;

  void add(float logit) {
    largest = logit > largest ? logit : largest;
    bad = bad || !(logit <= kLargestLogit);
  }
};
BlockSummary summarize(std::span<const float> logits) {
  // Two registers of maxima are independent of each other, which hides latency.
  Lanes largest = Lanes{} + kNoLogit, others = largest;
  LaneBits good = ~LaneBits{};
  std::size_t i = 0;
  for (; i + 2 * kLanes <= logits.size(); i += 2 * kLanes) {
    const Lanes here = lanes_at(&logits[i]), next = lanes_at(&logits[i + kLanes]);
    largest = here > largest ? here : largest;
    others = next > others ? next : others;
    good &= (here <= kLargestLogit) & (next <= kLargestLogit);
  }
  largest = others > largest ? others : largest;
  BlockSummary summary;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    summary.add(largest[lane]);
    summary.bad = summary.bad || good[lane] == 0;
  }
  for (; i < logits.size(); ++i) summary.add(logits[i]);
  return summary;
}

}  // namespace

std::int32_t HostSampler::draw(std::span<const float> logits, const SampleRequest& request) {
  logits_ = logits;
  if (summarize_blocks()) {
    const auto good = [](float logit) { return logit <= kLargestLogit; };
    const auto bad = std::ranges::find_if_not(logits, good);
    return bad_logit_of(static_cast<std::int32_t>(bad - logits.begin()));
  }
  const SampleRule& rule = request.rule;
  if (!request.changes.empty()) change(request.changes, rule);
  if (!request.allowed.empty()) ban_all_but(request.allowed);
  if (rule.temperature == 0) return largest();
  if (rule.mirostat != 0) {
    keep_all_sorted();
    if (candidates_.front().logit == kNoLogit) return kAllBanned;
    return draw_mirostat(candidates_, rule, request.surprise);
  }
  if (rule.top_n_sigma > 0) {
    keep_top_n_sigma(own_logits(), rule.top_n_sigma);
    summarize_blocks();
  }
  const auto k = static_cast<std::size_t>(rule.top_k);
  if (k > 0 && k < logits_.size() / 2) {
    keep_best(k);
  } else {
    keep_all_sorted();
    if (k > 0) candidates_.resize(std::min(candidates_.size(), k));
  }
  if (candidates_.front().logit == kNoLogit) return kAllBanned;
  if (rule.typical_p < 1) keep_typical(candidates_, rule.typical_p);
  if (rule.top_p < 1) {
    candidates_.resize(
        prefix(candidates_, 1, [&](std::uint64_t total) { return top_p_goal(rule.top_p, total); }));
  }
  if (rule.min_p > 0) {
    // Weights are at temperature 1, relative to the first token, whose weight is 1: it stays.
    const float largest = candidates_.front().logit;
    std::erase_if(candidates_,
                  [&](const auto& c) { return leq_exp(c.logit - largest) < rule.min_p; });
  }
  if (rule.xtc_probability > 0) leave_out_top(candidates_, rule);
  const auto goal = [&](std::uint64_t total) { return draw_goal(rule.random, total); };
  return candidates_[prefix(candidates_, rule.temperature, goal) - 1].id;
}

std::span<const float> HostSampler::block(std::size_t index) const {
  const std::size_t first = index * kBlock;
  return logits_.subspan(first, std::min(kBlock, logits_.size() - first));
}

bool HostSampler::summarize_blocks() {
  largest_.resize((logits_.size() + kBlock - 1) / kBlock);
  bool bad = false;
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    const BlockSummary summary = summarize(block(i));
    largest_[i] = summary.largest;
    bad = bad || summary.bad;
  }
  return bad;
}

std::vector<float>& HostSampler::own_logits() {
  if (logits_.data() != own_.data()) own_.assign(logits_.begin(), logits_.end());
  logits_ = own_;
  return own_;
}

void HostSampler::change(std::span<const LogitChange> changes, const SampleRule& rule) {
  std::vector<float>& logits = own_logits();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto id = static_cast<std::size_t>(changes[i].id);
    logits[id] = changed_logit(logits[id], rule, changes[i]);
    const std::size_t in = id / kBlock;
    const bool last =
        i + 1 == changes.size() || static_cast<std::size_t>(changes[i + 1].id) / kBlock != in;
    if (last) largest_[in] = summarize(block(in)).largest;
  }
}

// A word of `allowed` has the bits of one block.
void HostSampler::ban_all_but(std::span<const std::uint64_t> allowed) {
  std::vector<float>& logits = own_logits();
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    std::uint64_t banned = ~allowed[i];
    if (banned == 0) continue;  // the usual case: all tokens of the word are allowed, or none
    const auto here = std::span(logits).subspan(i * kBlock, block(i).size());
    if (banned == ~std::uint64_t{0}) {
      std::ranges::fill(here, kNoLogit);
      largest_[i] = kNoLogit;
      continue;
    }
    for (float& logit : here) {
      if ((banned & 1) != 0) logit = kNoLogit;
      banned >>= 1;
    }
    largest_[i] = summarize(here).largest;
  }
}

// The token with the largest logit; of equal logits the first.
std::int32_t HostSampler::largest() const {
  const auto most = std::ranges::max_element(largest_);
  if (*most == kNoLogit) return kAllBanned;
  const auto at = static_cast<std::size_t>(most - largest_.begin());
  const auto found = std::ranges::find(block(at), *most);
  return static_cast<std::int32_t>(at * kBlock) +
         static_cast<std::int32_t>(found - block(at).begin());
}

// At least k blocks have a logit not below the k-th largest of the blocks' maxima, so that logits
// below this bound are not among the best k. Few blocks have several logits at or above the bound.
void HostSampler::keep_best(std::size_t k) {
  float least = kNoLogit;
  if (k <= largest_.size()) {
    sorted_largest_ = largest_;
    const auto kth = sorted_largest_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::ranges::nth_element(sorted_largest_, kth, std::greater());
    least = *kth;
  }
  keys_.clear();
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (largest_[i] < least) continue;
    auto id = static_cast<std::uint32_t>(i * kBlock);
    for (const float logit : block(i)) {
      if (logit >= least) keys_.push_back(sample_key(order_of(logit), id));
      ++id;
    }
  }
  std::ranges::nth_element(keys_, keys_.begin() + static_cast<std::ptrdiff_t>(k) - 1);
  keys_.resize(k);
  std::ranges::sort(keys_);
  list_candidates();
}

void HostSampler::keep_all_sorted() {
  keys_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    keys_.push_back(sample_key(order_of(logits_[i]), static_cast<std::uint32_t>(i)));
  }
  radix_sort(keys_, sorting_);
  list_candidates();
}

void HostSampler::list_candidates() {
  candidates_.clear();
  for (const std::uint64_t key : keys_) {
    candidates_.push_back({static_cast<std::int32_t>(key & 0xffffffffu),
                           logit_of(static_cast<std::uint32_t>(key >> 32))});
  }
}

}  // namespace leq
