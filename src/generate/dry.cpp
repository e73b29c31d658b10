#include "generate/dry.h"

#include <algorithm>

namespace leq {
namespace {

constexpr std::size_t kMostRestTokens =
    20;  // a longer rest is cut to this many tokens, which still end a sequence

// out[k]: the length of the longest common suffix of `context` and of `context` without its last
// k tokens, at most `most`; that is, how many tokens before the end equal those before the k-th
// last token. out[0] is not used. Linear in the context's length (the Z algorithm, from the
// end).
void suffix_lengths(std::span<const Token> context, std::size_t most,
                    std::vector<std::size_t>& out) {
  const std::size_t n = context.size();
  const auto from_end = [&](std::size_t i) { return context[n - 1 - i]; };
  out.assign(n, 0);
  std::size_t left = 0, right = 0;  // from_end(left ... right - 1) equals from_end(0 ...)
  for (std::size_t k = 1; k < n; ++k) {
    std::size_t length = k < right ? std::min(right - k, out[k - left]) : 0;
    while (k + length < n && from_end(length) == from_end(k + length)) ++length;
    out[k] = length;
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
  for (std::size_t& length : out) length = std::min(length, most);
}

// multiplier * base^exponent, at most the largest float; computed by squaring, in a fixed order.
float dry_cost(const SamplingSettings& settings, std::size_t exponent) {
  double cost = double{settings.dry_multiplier}, factor = double{settings.dry_base};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) cost = std::min(cost * factor, kMostFinite);
    factor = std::min(factor * factor, kMostFinite);
  }
  return static_cast<float>(cost);
}

}  // namespace

DryBreakers::DryBreakers(const Tokenizer& tokenizer, std::span<const std::string> texts) {
  const auto add = [&](Token id, std::vector<Token> rest) {
    const auto [first, last] = rests_.equal_range(id);
    for (auto it = first; it != last; ++it) {
      if (it->second == rest) return;
    }
    rests_.emplace(id, std::move(rest));
  };
  for (std::size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<Token>(i);
    const std::string bytes = tokenizer.token_bytes(id);
    for (const std::string& text : texts) {
      if (bytes.find(text) != std::string::npos) {
        add(id, {});
        continue;
      }
      for (std::size_t shared = std::min(text.size() - 1, bytes.size()); shared > 0; --shared) {
        if (!bytes.ends_with(std::string_view(text).substr(0, shared))) continue;
        std::vector<Token> rest = tokenizer.encode(text.substr(shared), {.parse_special = false});
        rest.resize(std::min(rest.size(), kMostRestTokens));
        add(id, std::move(rest));
      }
    }
  }
}

std::size_t DryBreakers::tokens_since(std::span<const Token> context) const {
  for (std::size_t since = 0; since < context.size(); ++since) {
    const std::size_t at = context.size() - 1 - since;
    const auto [first, last] = rests_.equal_range(context[at]);
    std::size_t longest = 0;
    bool found = false;
    for (auto it = first; it != last; ++it) {
      const std::vector<Token>& rest = it->second;
      if (rest.size() > since || !std::ranges::equal(context.subspan(at + 1, rest.size()), rest)) {
        continue;
      }
      found = true;
      longest = std::max(longest, rest.size());
    }
    if (found) return since - longest;
  }
  return context.size();
}

bool DryBreakers::is_breaker(Token id) const {
  const auto [first, last] = rests_.equal_range(id);
  return std::any_of(first, last, [](const auto& entry) { return entry.second.empty(); });
}

bool uses_dry(const SamplingSettings& settings) {
  return settings.dry_multiplier > 0 && settings.dry_penalty_last_n != 0;
}

std::span<const LogitChange> DryPenalty::changes(std::span<const Token> context,
                                                 const SamplingSettings& settings,
                                                 const DryBreakers& breakers,
                                                 std::size_t vocabulary) {
  changes_.clear();
  const auto n = static_cast<std::size_t>(std::max(settings.dry_penalty_last_n, 0));
  if (settings.dry_penalty_last_n >= 0 && context.size() > n) context = context.last(n);
  const auto allowed = static_cast<std::size_t>(settings.dry_allowed_length);
  const std::size_t since = breakers.tokens_since(context);
  if (since < allowed) return {};
  suffix_lengths(context, since, lengths_);
  // The token that followed an earlier copy of the context's end would extend the repetition.
  for (std::size_t k = 1; k < context.size(); ++k) {
    if (lengths_[k] < allowed) continue;
    const Token id = context[context.size() - k];
    if (id < 0 || static_cast<std::size_t>(id) >= vocabulary || breakers.is_breaker(id)) continue;
    changes_.push_back({.id = id, .minus = dry_cost(settings, lengths_[k] - allowed)});
  }
  // If a token extends several sequences, the longest one counts, because its penalty is largest.
  std::ranges::sort(changes_, [](const LogitChange& a, const LogitChange& b) {
    return a.id != b.id ? a.id < b.id : a.minus > b.minus;
  });
  const auto same_id = [](const LogitChange& a, const LogitChange& b) { return a.id == b.id; };
  changes_.erase(std::unique(changes_.begin(), changes_.end(), same_id), changes_.end());
  return changes_;
}

}  // namespace leq
