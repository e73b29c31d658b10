#include "generate/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/float_math.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A key whose ascending order is (logit descending, id ascending). Adding +0 turns -0 into +0, so
// that both zeros are one logit.
std::uint64_t to_key(float logit, std::size_t id) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  const std::uint32_t descending = (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
  return std::uint64_t{descending} << 32 | id;
}

float logit_of(std::uint64_t key) {
  const auto descending = static_cast<std::uint32_t>(key >> 32);
  const bool negative = (descending >> 31) != 0;
  return std::bit_cast<float>(negative ? descending : ~descending & 0x7fffffffu);
}

Token id_of(std::uint64_t key) { return static_cast<Token>(key & 0xffffffffu); }

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

void check_range(bool inside, const char* flag, double found, const char* range) {
  require(inside, flag, " is ", found, ", expected ", range);
}

}  // namespace

void check_settings(const SamplingSettings& s) {
  check_range(s.temperature >= 0 && std::isfinite(s.temperature), "--temp", s.temperature,
              "0 (always the most probable token) or more");
  check_range(s.top_k >= -1, "--top-k", s.top_k, "1 or more, or 0 for all tokens");
  check_range(s.top_p >= 0 && s.top_p <= 1, "--top-p", s.top_p, "a number from 0 to 1 (off)");
  check_range(s.min_p >= 0 && s.min_p <= 1, "--min-p", s.min_p, "a number from 0 (off) to 1");
  check_range(s.repeat_penalty > 0 && std::isfinite(s.repeat_penalty), "--repeat-penalty",
              s.repeat_penalty, "a number above 0, 1 for none");
  check_range(s.repeat_last_n >= -1, "--repeat-last-n", s.repeat_last_n,
              "0 (off) or more, or -1 for all tokens");
  check_range(std::isfinite(s.presence_penalty), "--presence-penalty", s.presence_penalty,
              "a finite number");
  check_range(std::isfinite(s.frequency_penalty), "--frequency-penalty", s.frequency_penalty,
              "a finite number");
}

std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary) {
  std::vector<Token> ids;
  for (std::size_t i = 0; i < vocabulary; ++i) {
    const auto id = static_cast<Token>(i);
    if (i >= tokenizer.size() || tokenizer.type(id) == TokenType::unused) ids.push_back(id);
  }
  return ids;
}

Sampler::Sampler(const SamplingSettings& settings, std::size_t vocabulary,
                 std::span<const Token> banned)
    : settings_(settings), banned_(banned.begin(), banned.end()), logits_(vocabulary) {
  check_settings(settings);
  require(vocabulary > 0, "sampler: the vocabulary is empty");
  for (const Token id : banned_) {
    require(id >= 0 && static_cast<std::size_t>(id) < vocabulary, "sampler: banned token ", id,
            " is outside of the vocabulary of ", vocabulary);
  }
}

Token Sampler::sample(std::span<const float> logits, std::span<const Token> context,
                      const SamplePoint& point) {
  require(logits.size() == logits_.size(), "sampler: expected ", logits_.size(), " logits, found ",
          logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    require(logits[i] <= std::numeric_limits<float>::max(), "sampler: the logit of token ", i,
            " is ", logits[i], ": the model's weights or scales are damaged");
    logits_[i] = logits[i];
  }
  const bool greedy = settings_.temperature == 0;
  if (!greedy || settings_.penalties_when_greedy) penalize(context);
  for (const Token id : banned_) logits_[static_cast<std::size_t>(id)] = kNever;
  if (greedy) return largest();
  const auto k = static_cast<std::size_t>(std::max(settings_.top_k, 0));
  if (k > 0 && k < logits_.size() / 2) {
    keep_top_k();
  } else {
    keep_all_sorted();
  }
  require(survivors_.front().logit > kNever, "sampler: every token is banned");
  keep_top_p();
  keep_min_p();
  return draw(point);
}

void Sampler::penalize(std::span<const Token> context) {
  const auto n = static_cast<std::size_t>(std::max(settings_.repeat_last_n, 0));
  if (settings_.repeat_last_n >= 0 && context.size() > n) context = context.last(n);
  recent_.assign(context.begin(), context.end());
  std::sort(recent_.begin(), recent_.end());
  for (auto first = recent_.begin(); first != recent_.end();) {
    const auto last = std::upper_bound(first, recent_.end(), *first);
    const auto count = static_cast<float>(last - first);
    const Token id = *first;
    first = last;
    if (id < 0 || static_cast<std::size_t>(id) >= logits_.size()) continue;
    float& logit = logits_[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / settings_.repeat_penalty : logit * settings_.repeat_penalty;
    logit -= count * settings_.frequency_penalty + settings_.presence_penalty;
  }
}

Token Sampler::largest() const {
  const auto found = std::max_element(logits_.begin(), logits_.end());  // the first of equals
  require(*found > kNever, "sampler: every token is banned");
  return static_cast<Token>(found - logits_.begin());
}

// One pass over the logits: a buffer of a few k candidates is cut back to the best k whenever it is
// full, and what is worse than the k-th so far does not enter it.
void Sampler::keep_top_k() {
  const auto k = static_cast<std::size_t>(settings_.top_k);
  const std::size_t capacity = std::max<std::size_t>(4 * k, 1024);
  const auto cut = [&] {
    if (keys_.size() <= k) return;
    std::nth_element(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(k) - 1,
                     keys_.end());
    keys_.resize(k);
  };
  std::uint64_t limit = ~std::uint64_t{0};
  keys_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    const std::uint64_t key = to_key(logits_[i], i);
    if (key >= limit) continue;
    keys_.push_back(key);
    if (keys_.size() < capacity) continue;
    cut();
    limit = keys_[k - 1];
  }
  cut();
  std::sort(keys_.begin(), keys_.end());
  survivors_.clear();
  for (const std::uint64_t key : keys_) survivors_.push_back({id_of(key), logit_of(key)});
}

void Sampler::keep_all_sorted() {
  keys_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) keys_.push_back(to_key(logits_[i], i));
  radix_sort(keys_, sorting_);
  if (settings_.top_k > 0) {
    keys_.resize(std::min(keys_.size(), static_cast<std::size_t>(settings_.top_k)));
  }
  survivors_.clear();
  for (const std::uint64_t key : keys_) survivors_.push_back({id_of(key), logit_of(key)});
}

// The shortest prefix whose probability at temperature 1 is at least top_p of the survivors'.
void Sampler::keep_top_p() {
  if (settings_.top_p >= 1) return;
  const float largest = survivors_.front().logit;
  double total = 0;
  for (const Candidate& c : survivors_) total += double{leq_exp(c.logit - largest)};
  const double enough = double{settings_.top_p} * total;
  double sum = 0;
  for (std::size_t i = 0; i < survivors_.size(); ++i) {
    sum += double{leq_exp(survivors_[i].logit - largest)};
    if (sum < enough) continue;
    survivors_.resize(i + 1);
    return;
  }
}

// Probabilities at temperature 1 relative to the first one's, which is 1 and always stays.
void Sampler::keep_min_p() {
  if (settings_.min_p <= 0) return;
  const float largest = survivors_.front().logit;
  const auto improbable = [&](const Candidate& c) {
    return leq_exp(c.logit - largest) < settings_.min_p;
  };
  survivors_.erase(std::find_if(survivors_.begin(), survivors_.end(), improbable),
                   survivors_.end());
}

Token Sampler::draw(const SamplePoint& point) const {
  const float largest = survivors_.front().logit;
  const auto weight = [&](const Candidate& c) {
    return double{leq_exp((c.logit - largest) / settings_.temperature)};
  };
  double total = 0;
  for (const Candidate& c : survivors_) total += weight(c);
  const std::uint32_t word =
      philox(settings_.seed, {point.index, point.reply, point.sequence, 0})[0];
  const double goal = double{static_cast<float>(word >> 8) * 0x1p-24f} * total;
  double sum = 0;
  for (const Candidate& c : survivors_) {
    sum += weight(c);
    if (sum > goal) return c.id;
  }
  return survivors_.front().id;  // not reached: the last sum is the total, and the goal is below it
}

}  // namespace leq
