#include "sampling/sampler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

constexpr double kNoSurprise = -1;  // unset; real values are 0 or more
// A longer rest is cut to this many tokens, which still end a sequence.
constexpr std::size_t kMaxRestTokens = 20;

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
    if (exponent % 2 == 1) cost = std::min(cost * factor, kMaxFinite);
    factor = std::min(factor * factor, kMaxFinite);
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
        rest.resize(std::min(rest.size(), kMaxRestTokens));
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

std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary) {
  std::vector<Token> ids;
  for (std::size_t i = 0; i < vocabulary; ++i) {
    const auto id = static_cast<Token>(i);
    if (i >= tokenizer.size() || tokenizer.type(id) == TokenType::unused) ids.push_back(id);
  }
  return ids;
}

Sampler::Sampler(const SamplingSettings& settings, std::size_t vocabulary,
                 std::span<const Token> banned, const Tokenizer& tokenizer)
    : Sampler(settings, vocabulary, banned,
              uses_dry(settings)
                  ? std::make_shared<const DryBreakers>(tokenizer, settings.dry_breakers)
                  : nullptr) {}

Sampler::Sampler(const SamplingSettings& settings, std::size_t vocabulary,
                 std::span<const Token> banned, std::shared_ptr<const DryBreakers> breakers)
    : settings_(settings),
      rule_(sample_rule(settings)),
      vocabulary_(vocabulary),
      breakers_(breakers ? std::move(breakers) : std::make_shared<const DryBreakers>()),
      surprise_(kNoSurprise) {
  check_settings(settings);
  ensure(vocabulary > 0, "sampler: the vocabulary is empty");
  rule_.mirostat_mu = 2 * double{settings.mirostat_ent};
  for (const LogitBias& bias : settings.logit_bias) {
    require(static_cast<std::size_t>(bias.id) < vocabulary, Setting{"logit_bias"}, " is for token ",
            bias.id, ", expected an id below the model's vocabulary of ", vocabulary);
    fixed_.push_back({.id = bias.id, .bias = bias.bias});
  }
  for (const Token id : banned) {
    ensure(id >= 0 && static_cast<std::size_t>(id) < vocabulary, "sampler: banned token ", id,
           " is outside of the vocabulary of ", vocabulary);
    fixed_.push_back(banned_token(id));
  }
  // If a token has several biases, the last one counts; a ban overrides any bias.
  std::ranges::stable_sort(fixed_, {}, &LogitChange::id);
  std::vector<LogitChange> once;
  for (const LogitChange& change : fixed_) {
    if (once.empty() || once.back().id != change.id) {
      once.push_back(change);
    } else {
      once.back() = change;
    }
  }
  fixed_ = std::move(once);
}

SampleRequest Sampler::request(std::span<const Token> context, const SamplePoint& point) {
  changes_.assign(fixed_.begin(), fixed_.end());
  if (penalties_act()) {
    count_recent(context);
    merge(repeated_);
    if (uses_dry(settings_)) merge(dry_.changes(context, settings_, *breakers_, vocabulary_));
  }
  surprise_ = kNoSurprise;
  SampleRequest request = {rule_, changes_, rule_.mirostat != 0 ? &surprise_ : nullptr};
  const PhiloxCounter words = philox(settings_.seed, {point.index, point.reply, point.choice, 0});
  request.rule.random = words[0];
  request.rule.coin = words[1];
  return request;
}

bool Sampler::penalties_act() const {
  return settings_.temperature > 0 || settings_.penalties_when_greedy;
}

bool Sampler::has_penalties() const {
  return settings_.repeat_penalty != 1 || settings_.presence_penalty != 0 ||
         settings_.frequency_penalty != 0;
}

bool Sampler::reads_text() const {
  return rule_.mirostat != 0 || (penalties_act() && (has_penalties() || uses_dry(settings_)));
}

void Sampler::took() {
  if (surprise_ < 0) return;
  rule_.mirostat_mu -= double{settings_.mirostat_lr} * (surprise_ - double{settings_.mirostat_ent});
  surprise_ = kNoSurprise;
}

// Merges changes, sorted by id, into changes_, so that all changes of a token are adjacent.
void Sampler::merge(std::span<const LogitChange> more) {
  if (more.empty()) return;
  merged_.clear();
  auto old = changes_.begin();
  for (const LogitChange& change : more) {
    while (old != changes_.end() && old->id < change.id) merged_.push_back(*old++);
    if (old == changes_.end() || old->id != change.id) {
      merged_.push_back(change);
      continue;
    }
    merged_.push_back({.id = change.id,
                       .repeats = old->repeats + change.repeats,
                       .bias = old->bias + change.bias,
                       .minus = old->minus + change.minus});
    ++old;
  }
  merged_.insert(merged_.end(), old, changes_.end());
  changes_.swap(merged_);
}

// The distinct tokens at the end of the context, with their counts.
void Sampler::count_recent(std::span<const Token> context) {
  repeated_.clear();
  if (!has_penalties()) return;
  const auto n = static_cast<std::size_t>(std::max(settings_.repeat_last_n, 0));
  if (settings_.repeat_last_n >= 0 && context.size() > n) context = context.last(n);
  recent_.assign(context.begin(), context.end());
  std::sort(recent_.begin(), recent_.end());
  for (const Token id : recent_) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocabulary_) continue;
    if (repeated_.empty() || repeated_.back().id != id) repeated_.push_back({.id = id});
    ++repeated_.back().repeats;
  }
}

}  // namespace leq
