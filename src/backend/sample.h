// Sampling: from one row of logits to its token, with the same arithmetic on every backend. All
// sums are of integers, so that no order of work changes a token (docs/sampling.md). The constexpr
// functions are compiled for GPUs too.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace leq {

inline constexpr float kLargestLogit = std::numeric_limits<float>::max();
inline constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// Changes of one logit before anything else: `bias` first, then penalties, then `minus`.
struct LogitChange {
  std::int32_t id = 0;
  std::int32_t repeats = 0;  // times that the rule's penalties count for it; 0: they do not act
  float bias = 0;            // is added; kNoLogit: the token is never drawn
  float minus = 0;           // is subtracted; 0 or more

  bool operator==(const LogitChange&) const = default;
};
constexpr LogitChange banned_token(std::int32_t id) { return {id, 0, kNoLogit, 0}; }

// Ranges as in SamplingSettings (model/sampling_settings.h), from which these are made.
struct SampleRule {
  float temperature = 1;   // 0: the token of the largest logit; top_k, top_p, min_p do nothing
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::uint32_t random = 0;  // the draw's random number is (random >> 8) / 2^24

  // Cuts that only the host makes: a row with one of them is downloaded by other devices.
  float top_n_sigma = 0;       // 0 or less: off
  float typical_p = 1;         // 1: off
  float xtc_probability = 0;   // 0: off
  float xtc_threshold = 0.1f;  // above 0.5: off
  std::uint32_t coin = 0;      // XTC's random number, as `random`
  std::int32_t mirostat = 0;   // 1 or 2: its version, in place of all cuts; 0: off
  double mirostat_mu = 0;      // the largest surprise that it allows, in bits
};
constexpr bool draws_on_host(const SampleRule& rule) {
  const bool xtc = rule.xtc_probability > 0 && rule.xtc_threshold <= 0.5f;
  return rule.temperature > 0 &&
         (rule.top_n_sigma > 0 || rule.typical_p < 1 || xtc || rule.mirostat != 0);
}

struct SampleRequest {
  SampleRule rule;
  std::span<const LogitChange> changes;  // ids ascending, each once
  // Where mirostat draws: set to the token's surprise in bits, minus the logarithm of the
  // probability with which it was drawn. May be null.
  double* surprise = nullptr;
  // Bit i % 64 of word i / 64, [ceil(V / 64)]: whether token i may be drawn. Empty: all may. What
  // may not is as if it were banned.
  std::span<const std::uint64_t> allowed = {};
};
constexpr bool draws_on_host(const SampleRequest& request) {
  return draws_on_host(request.rule) || !request.allowed.empty();
}

// What is drawn where there is no token: nothing but banned ones, or a logit that is NaN or
// +infinity, the first of which is named.
inline constexpr std::int32_t kAllBanned = -1;
constexpr std::int32_t bad_logit_of(std::int32_t id) { return -2 - id; }

// The logit clamped to the range of floats: kNoLogit below it.
constexpr float clamped_logit(float l) {
  if (l > kLargestLogit) return kLargestLogit;
  return l >= -kLargestLogit ? l : kNoLogit;
}
// l + bias; where it repeats l / repeat or l * repeat, then l - (count * frequency + presence);
// l - minus. Kept a logit after each.
constexpr float changed_logit(float logit, const SampleRule& rule, const LogitChange& change) {
  float l = clamped_logit(logit + change.bias);
  if (change.repeats > 0 && l != kNoLogit) {
    l = l > 0 ? l / rule.repeat_penalty : l * rule.repeat_penalty;
    l -= static_cast<float>(change.repeats) * rule.frequency_penalty + rule.presence_penalty;
    l = clamped_logit(l);
  }
  return clamped_logit(l - change.minus);
}

// A logit's place: ascending = from the largest logit down. Adding +0 turns -0 into +0, so that
// both zeros are one logit.
constexpr std::uint32_t order_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
}
constexpr float logit_of(std::uint32_t order) {
  return std::bit_cast<float>((order >> 31) != 0 ? order : ~order & 0x7fffffffu);
}
// Ascending keys = (logit descending, id ascending).
constexpr std::uint64_t sample_key(std::uint32_t order, std::uint32_t id) {
  return std::uint64_t{order} << 32 | id;
}

// A weight, exp of something <= 0, in units of 2^-40, rounded down: sums of 2^23 of them are exact.
constexpr std::uint64_t mass_of(float weight) {
  return static_cast<std::uint64_t>(weight * 0x1p40f);
}
inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 23;

// The mass that the shortest prefix for top-p has at least: p * total in double, rounded up.
constexpr std::uint64_t top_p_goal(float top_p, std::uint64_t total) {
  const double share = static_cast<double>(top_p) * static_cast<double>(total);
  const auto whole = static_cast<std::uint64_t>(share);
  return whole + (static_cast<double>(whole) < share ? 1 : 0);
}
// The drawn token is the first whose prefix has at least this mass: more than r * total, with
// r = (random >> 8) / 2^24, without rounding. At most `total`, which is not 0.
constexpr std::uint64_t draw_goal(std::uint32_t random, std::uint64_t total) {
  const std::uint64_t r = random >> 8, low = total & 0xffffffu;
  return (total >> 24) * r + (low * r >> 24) + 1;
}

// A placeholder for a token id: the token of this row of the device's last draw, which the host
// does not know yet (Operations::begin_sample). Where the row has none, token 0.
constexpr std::int32_t placeholder_id(std::int32_t row) {
  return std::numeric_limits<std::int32_t>::min() + row;
}
constexpr std::int32_t row_of_placeholder(std::int32_t id) {
  return id - std::numeric_limits<std::int32_t>::min();
}
inline constexpr std::int32_t kMostDrawnRows = 1 << 16;
constexpr bool is_placeholder_id(std::int32_t id) { return id < placeholder_id(kMostDrawnRows); }

// A token that may be drawn. Lists of them are sorted by key.
struct SampleCandidate {
  std::int32_t id;
  float logit;
};

// Draws on the host; holds the scratch between rows. One for each thread.
class HostSampler {
 public:
  // logits [V], ids of `request.changes` below V. The token, or what stands above for none.
  std::int32_t draw(std::span<const float> logits, const SampleRequest& request);

 private:
  std::span<const float> block(std::size_t index) const;
  bool summarize_blocks();             // sets largest_; whether a logit is NaN or +infinity
  std::vector<float>& own_logits();  // logits_ is a copy from then on
  void change(std::span<const LogitChange> changes, const SampleRule& rule);
  void ban_all_but(std::span<const std::uint64_t> allowed);
  std::int32_t largest() const;
  void keep_best(std::size_t k);
  void keep_all_sorted();
  void list_candidates();
  void keep_top_p(float top_p);
  void keep_min_p(float min_p);
  std::int32_t pick(const SampleRule& rule) const;

  std::span<const float> logits_;       // [V] the row, or own_: after changes
  std::vector<float> own_;              // [V]
  std::vector<float> largest_;          // of each block of logits_
  std::vector<float> sorted_largest_;   // in part
  std::vector<std::uint64_t> keys_;     // sample_key
  std::vector<std::uint64_t> sorting_;  // the other half of the radix sort
  std::vector<SampleCandidate> candidates_;
};

}  // namespace leq
