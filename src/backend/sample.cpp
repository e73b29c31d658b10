#include "backend/sample.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "backend/sample_cuts.h"
#include "base/float_math.h"

namespace leq {
namespace {

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
struct Look {
  float largest = kNoLogit;
  bool bad = false;

  void see(float logit) {
    largest = logit > largest ? logit : largest;
    bad = bad || !(logit <= kLargestLogit);
  }
};
Look look_at(std::span<const float> logits) {
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
  Look look;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    look.see(largest[lane]);
    look.bad = look.bad || good[lane] == 0;
  }
  for (; i < logits.size(); ++i) look.see(logits[i]);
  return look;
}

}  // namespace

std::int32_t HostSampler::draw(std::span<const float> logits, const SampleRequest& request) {
  logits_ = logits;
  if (look_at_blocks()) {
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
    if (survivors_.front().logit == kNoLogit) return kAllBanned;
    return draw_mirostat(survivors_, rule, request.surprise);
  }
  if (rule.top_n_sigma > 0) {
    keep_top_n_sigma(own_logits(), rule.top_n_sigma);
    look_at_blocks();
  }
  const auto k = static_cast<std::size_t>(rule.top_k);
  if (k > 0 && k < logits_.size() / 2) {
    keep_best(k);
  } else {
    keep_all_sorted();
    if (k > 0) survivors_.resize(std::min(survivors_.size(), k));
  }
  if (survivors_.front().logit == kNoLogit) return kAllBanned;
  if (rule.typical_p < 1) keep_typical(survivors_, rule.typical_p);
  if (rule.top_p < 1) keep_top_p(rule.top_p);
  if (rule.min_p > 0) keep_min_p(rule.min_p);
  if (rule.xtc_probability > 0) leave_out_top(survivors_, rule);
  return pick(rule);
}

std::span<const float> HostSampler::block(std::size_t index) const {
  const std::size_t first = index * kBlock;
  return logits_.subspan(first, std::min(kBlock, logits_.size() - first));
}

bool HostSampler::look_at_blocks() {
  largest_.resize((logits_.size() + kBlock - 1) / kBlock);
  bool bad = false;
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    const Look look = look_at(block(i));
    largest_[i] = look.largest;
    bad = bad || look.bad;
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
    if (last) largest_[in] = look_at(block(in)).largest;
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
    largest_[i] = look_at(here).largest;
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
  list_survivors();
}

void HostSampler::keep_all_sorted() {
  keys_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    keys_.push_back(sample_key(order_of(logits_[i]), static_cast<std::uint32_t>(i)));
  }
  radix_sort(keys_, sorting_);
  list_survivors();
}

void HostSampler::list_survivors() {
  survivors_.clear();
  for (const std::uint64_t key : keys_) {
    survivors_.push_back({static_cast<std::int32_t>(key & 0xffffffffu),
                          logit_of(static_cast<std::uint32_t>(key >> 32))});
  }
}

// Keeps the shortest prefix whose mass at temperature 1 is at least top_p of the total mass.
void HostSampler::keep_top_p(float top_p) {
  const float largest = survivors_.front().logit;
  const auto mass = [&](const SampleCandidate& c) { return mass_of(leq_exp(c.logit - largest)); };
  std::uint64_t total = 0;
  for (const SampleCandidate& c : survivors_) total += mass(c);
  const std::uint64_t goal = top_p_goal(top_p, total);
  std::uint64_t sum = 0;
  std::size_t kept = 0;
  do sum += mass(survivors_[kept++]);
  while (sum < goal);
  survivors_.resize(kept);
}

// Weights are at temperature 1, relative to the first token, whose weight is 1: it is always kept.
void HostSampler::keep_min_p(float min_p) {
  const float largest = survivors_.front().logit;
  std::erase_if(survivors_,
                [&](const SampleCandidate& c) { return leq_exp(c.logit - largest) < min_p; });
}

std::int32_t HostSampler::pick(const SampleRule& rule) const {
  const float largest = survivors_.front().logit;
  const auto mass = [&](const SampleCandidate& c) {
    return mass_of(leq_exp((c.logit - largest) / rule.temperature));
  };
  std::uint64_t total = 0;
  for (const SampleCandidate& c : survivors_) total += mass(c);
  const std::uint64_t goal = draw_goal(rule.random, total);
  std::uint64_t sum = 0;
  const auto drawn = std::ranges::find_if(
      survivors_, [&](const SampleCandidate& c) { return (sum += mass(c)) >= goal; });
  return drawn->id;  // it exists: the last sum is the total, which is at least the goal
}

}  // namespace leq
