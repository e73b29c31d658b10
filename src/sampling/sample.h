// Sampling: the token of a row of logits, computed with the same arithmetic on every backend. All
// sums are sums of integers, so that no order of work changes a token (docs/sampling.md). The
// constexpr functions are also compiled for GPUs.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace leq {

inline constexpr float kLargestLogit = std::numeric_limits<float>::max();
inline constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

// A change of one logit before sampling: `bias` is applied first, then penalties, then `minus`.
struct LogitChange {
  std::int32_t id = 0;
  std::int32_t repeats = 0;  // number of repetitions that penalties count; 0: no penalties
  float bias = 0;            // added; kNoLogit: the token is never drawn
  float minus = 0;           // subtracted; >= 0

  bool operator==(const LogitChange&) const = default;
};
constexpr LogitChange banned_token(std::int32_t id) { return {id, 0, kNoLogit, 0}; }

// Fields have the ranges of SamplingSettings (sampling/settings.h), which rules derive from.
struct SampleRule {
  float temperature = 1;   // 0: the token with the largest logit, without top_k, top_p, min_p
  std::int32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
  float repeat_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::uint32_t random = 0;  // the draw's random number is (random >> 8) / 2^24

  // Cuts that only the host computes; devices download rows with such cuts to the host.
  float top_n_sigma = 0;       // 0 or less: off
  float typical_p = 1;         // 1: off
  float xtc_probability = 0;   // 0: off
  float xtc_threshold = 0.1f;  // above 0.5: off
  std::uint32_t coin = 0;      // XTC's random number, scaled as `random`
  std::int32_t mirostat = 0;   // 2: Mirostat 2 instead of all cuts; 0: off
  double mirostat_mu = 0;      // the largest surprise that mirostat allows, in bits
};
constexpr bool draws_on_host(const SampleRule& rule) {
  const bool xtc = rule.xtc_probability > 0 && rule.xtc_threshold <= 0.5f;
  return rule.temperature > 0 &&
         (rule.top_n_sigma > 0 || rule.typical_p < 1 || xtc || rule.mirostat != 0);
}

struct SampleRequest {
  SampleRule rule;
  std::span<const LogitChange> changes;  // ids ascending, without duplicates
  // If mirostat draws: set to the surprise of the token in bits, which is minus the logarithm of
  // its probability in the draw. May be null.
  double* surprise = nullptr;
  // A bit set of [ceil(V / 64)] words: bit i % 64 of word i / 64 is 1 if token i is allowed. Tokens
  // that are not allowed are handled as banned. Empty: all tokens are allowed.
  std::span<const std::uint64_t> allowed = {};
};
constexpr bool draws_on_host(const SampleRequest& request) {
  return draws_on_host(request.rule) || !request.allowed.empty();
}

// The results of rows without a token: kAllBanned if all tokens are banned, bad_logit_of(id) if the
// logit of `id` is the first that is NaN or +infinity.
inline constexpr std::int32_t kAllBanned = -1;
constexpr std::int32_t bad_logit_of(std::int32_t id) { return -2 - id; }

// Clamps a logit to the range of floats; below this range the result is kNoLogit.
constexpr float clamped_logit(float l) {
  if (l > kLargestLogit) return kLargestLogit;
  return l >= -kLargestLogit ? l : kNoLogit;
}
// l + bias; for repeated tokens l / repeat or l * repeat, then l - (count * frequency + presence);
// then l - minus. Each result is clamped by clamped_logit.
constexpr float changed_logit(float logit, const SampleRule& rule, const LogitChange& change) {
  float l = clamped_logit(logit + change.bias);
  if (change.repeats > 0 && l != kNoLogit) {
    l = l > 0 ? l / rule.repeat_penalty : l * rule.repeat_penalty;
    l -= static_cast<float>(change.repeats) * rule.frequency_penalty + rule.presence_penalty;
    l = clamped_logit(l);
  }
  return clamped_logit(l - change.minus);
}

// The bits of a logit in an order in which ascending numbers are descending logits. Adding +0
// converts -0 to +0, so that both zeros are equal.
constexpr std::uint32_t order_of(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  return (bits >> 31) != 0 ? bits : ~bits & 0x7fffffffu;
}
constexpr float logit_of(std::uint32_t order) {
  return std::bit_cast<float>((order >> 31) != 0 ? order : ~order & 0x7fffffffu);
}
// Ascending keys are in descending order of logits; equal logits are in ascending order of ids.
constexpr std::uint64_t sample_key(std::uint32_t order, std::uint32_t id) {
  return std::uint64_t{order} << 32 | id;
}

// A weight (exp of x <= 0) in units of 2^-40, rounded down. Sums of up to 2^23 weights are exact.
constexpr std::uint64_t mass_of(float weight) {
  return static_cast<std::uint64_t>(weight * 0x1p40f);
}
inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 23;

// The least mass of the shortest prefix for top-p: p * total in double, rounded up.
constexpr std::uint64_t top_p_goal(float top_p, std::uint64_t total) {
  const double share = static_cast<double>(top_p) * static_cast<double>(total);
  const auto whole = static_cast<std::uint64_t>(share);
  return whole + (static_cast<double>(whole) < share ? 1 : 0);
}
// The drawn token is the first whose prefix has at least this mass: the smallest integer above
// r * total, r = (random >> 8) / 2^24, computed exactly. It is at most `total`, which is not 0.
constexpr std::uint64_t draw_goal(std::uint32_t random, std::uint64_t total) {
  const std::uint64_t r = random >> 8, low = total & 0xffffffu;
  return (total >> 24) * r + (low * r >> 24) + 1;
}

// A placeholder for a token id that the host does not have yet (Operations::begin_sample): the
// token of this row of the device's last draw. If the row has no token, token 0 is used.
constexpr std::int32_t placeholder_id(std::int32_t row) {
  return std::numeric_limits<std::int32_t>::min() + row;
}
constexpr std::int32_t row_of_placeholder(std::int32_t id) {
  return id - std::numeric_limits<std::int32_t>::min();
}
inline constexpr std::int32_t kMaxDrawnRows = 1 << 16;
constexpr bool is_placeholder_id(std::int32_t id) { return id < placeholder_id(kMaxDrawnRows); }

// A token that may be drawn. Lists of candidates are sorted by key.
struct SampleCandidate {
  std::int32_t id;
  float logit;
};

// Draws on the host. It holds scratch that rows reuse, so that each thread needs its own.
class HostSampler {
 public:
  // logits [V], ids of `request.changes` below V. Returns the token, or kAllBanned or bad_logit_of.
  std::int32_t draw(std::span<const float> logits, const SampleRequest& request);

 private:
  std::span<const float> block(std::size_t index) const;
  bool summarize_blocks();           // sets largest_; returns whether a logit is NaN or +infinity
  std::vector<float>& own_logits();  // copies logits_ to own_ unless this has been done
  void change(std::span<const LogitChange> changes, const SampleRule& rule);
  void ban_all_but(std::span<const std::uint64_t> allowed);
  std::int32_t largest() const;
  void keep_best(std::size_t k);
  void keep_all_sorted();
  void list_candidates();

  std::span<const float> logits_;       // [V]; the row, or own_ after changes
  std::vector<float> own_;              // [V]
  std::vector<float> largest_;          // the maximum of each block of logits_
  std::vector<float> sorted_largest_;   // partially sorted
  std::vector<std::uint64_t> keys_;     // sample_key
  std::vector<std::uint64_t> sorting_;  // scratch of the radix sort
  std::vector<SampleCandidate> candidates_;
};

}  // namespace leq
