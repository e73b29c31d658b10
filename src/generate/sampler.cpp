#include "generate/sampler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace leq {

std::vector<Token> ids_without_token(const Tokenizer& tokenizer, std::size_t vocabulary) {
  std::vector<Token> ids;
  for (std::size_t i = 0; i < vocabulary; ++i) {
    const auto id = static_cast<Token>(i);
    if (i >= tokenizer.size() || tokenizer.type(id) == TokenType::unused) ids.push_back(id);
  }
  return ids;
}

namespace {

constexpr double kNoSurprise = -1;  // unset; real values are 0 or more

std::shared_ptr<const DryBreakers> breakers_of(const SamplingSettings& settings,
                                               const Tokenizer& tokenizer) {
  if (!uses_dry(settings)) return nullptr;
  return std::make_shared<const DryBreakers>(tokenizer, settings.dry_breakers);
}

}  // namespace

Sampler::Sampler(const SamplingSettings& settings, std::size_t vocabulary,
                 std::span<const Token> banned, const Tokenizer& tokenizer)
    : Sampler(settings, vocabulary, banned, breakers_of(settings, tokenizer)) {}

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
