#include "backend/sample.h"

#include <algorithm>
#include <array>

#include "backend/sample_cuts.h"
#include "base/float_math.h"

namespace leq {
namespace {

// Sorts keys whose low halves ascend already by their high halves: three stable passes of 11 bits.
// `other` is scratch.
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

constexpr std::size_t kBlock = 64;  // logits that are looked at together
using Block = std::span<const float, kBlock>;

// As compilers make vectors of. NaN is above all, and all are above NaN.
bool none_above(Block logits, float limit) {
  std::int32_t above = 0;
  for (const float logit : logits) above |= logit <= limit ? 0 : 1;
  return above == 0;
}

// The first that is NaN or +infinity; logits.size() where none is.
std::size_t first_bad(std::span<const float> logits) {
  std::size_t i = 0;
  while (i + kBlock <= logits.size() &&
         none_above(logits.subspan(i).first<kBlock>(), kLargestLogit)) {
    i += kBlock;
  }
  while (i < logits.size() && logits[i] <= kLargestLogit) ++i;
  return i;
}

}  // namespace

std::int32_t HostSampler::draw(std::span<const float> logits, const SampleRequest& request) {
  const std::size_t bad = first_bad(logits);
  if (bad < logits.size()) return bad_logit_of(static_cast<std::int32_t>(bad));
  logits_.assign(logits.begin(), logits.end());
  const SampleRule& rule = request.rule;
  for (const LogitChange& change : request.changes) {
    float& logit = logits_[static_cast<std::size_t>(change.id)];
    logit = changed_logit(logit, rule, change);
  }
  if (!request.allowed.empty()) ban_all_but(request.allowed);
  if (rule.temperature == 0) return largest();
  if (rule.mirostat != 0) {
    keep_all_sorted();
    if (survivors_.front().logit == kNoLogit) return kAllBanned;
    return draw_mirostat(survivors_, rule, request.surprise);
  }
  if (rule.top_n_sigma > 0) keep_top_n_sigma(logits_, rule.top_n_sigma);
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

void HostSampler::ban_all_but(std::span<const std::uint64_t> allowed) {
  for (std::size_t first = 0; first < logits_.size(); first += 64) {
    std::uint64_t banned = ~allowed[first / 64];
    const std::span<float> logits =
        std::span(logits_).subspan(first, std::min<std::size_t>(64, logits_.size() - first));
    if (banned == ~std::uint64_t{0}) std::ranges::fill(logits, kNoLogit);
    if (banned == ~std::uint64_t{0} || banned == 0) continue;  // most words of most grammars
    for (float& logit : logits) {
      if ((banned & 1) != 0) logit = kNoLogit;
      banned >>= 1;
    }
  }
}

std::int32_t HostSampler::largest() const {
  const auto found = std::ranges::max_element(logits_);  // the first of equals
  return *found == kNoLogit ? kAllBanned : static_cast<std::int32_t>(found - logits_.begin());
}

// One pass over the logits: a buffer of a few k candidates is cut back to the best k whenever it is
// full, and what is no better than the k-th so far does not enter it: equals come later.
void HostSampler::keep_best(std::size_t k) {
  const std::size_t capacity = std::max<std::size_t>(4 * k, 1024);
  const auto cut = [&] {
    if (keys_.size() <= k) return;
    std::nth_element(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(k) - 1,
                     keys_.end());
    keys_.resize(k);
  };
  std::uint64_t limit = ~std::uint64_t{0};
  keys_.clear();
  const auto look_at = [&](std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      const std::uint64_t key = sample_key(order_of(logits_[i]), static_cast<std::uint32_t>(i));
      if (key >= limit) continue;
      keys_.push_back(key);
      if (keys_.size() < capacity) continue;
      cut();
      limit = keys_[k - 1];
    }
  };
  const std::span<const float> logits = logits_;
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    // The k-th so far; NaN at first.
    const float kth = logit_of(static_cast<std::uint32_t>(limit >> 32));
    if (!none_above(logits.subspan(i).first<kBlock>(), kth)) look_at(i, kBlock);
  }
  look_at(i, logits.size() - i);
  cut();
  std::sort(keys_.begin(), keys_.end());
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

// The shortest prefix whose mass at temperature 1 is at least top_p of the survivors'.
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

// Weights at temperature 1 relative to the first one's, which is 1 and always stays.
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
  return drawn->id;  // there is one: the last sum is the total, the goal at most that
}

}  // namespace leq
