#include "generate/sampler.h"

#include <algorithm>
#include <iterator>

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

Sampler::Sampler(const SamplingSettings& settings, std::size_t vocabulary,
                 std::span<const Token> banned)
    : settings_(settings), rule_(sample_rule(settings)), vocabulary_(vocabulary) {
  check_settings(settings);
  ensure(vocabulary > 0, "sampler: the vocabulary is empty");
  std::vector<Token> ids(banned.begin(), banned.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const Token id : ids) {
    ensure(id >= 0 && static_cast<std::size_t>(id) < vocabulary, "sampler: banned token ", id,
           " is outside of the vocabulary of ", vocabulary);
    banned_.push_back({id, 0});
  }
}

SampleRequest Sampler::request(std::span<const Token> context, const SamplePoint& point) {
  const bool greedy = settings_.temperature == 0;
  repeated_.clear();
  if (!greedy || settings_.penalties_when_greedy) count_recent(context);
  changes_.clear();  // where a token is in both, banned_ wins: it comes first
  std::set_union(banned_.begin(), banned_.end(), repeated_.begin(), repeated_.end(),
                 std::back_inserter(changes_),
                 [](const LogitChange& a, const LogitChange& b) { return a.id < b.id; });
  SampleRequest request = {rule_, changes_};
  request.rule.random = philox(settings_.seed, {point.index, point.reply, point.choice, 0})[0];
  return request;
}

// The last tokens of the context, each once with how often it occurs.
void Sampler::count_recent(std::span<const Token> context) {
  const bool none = settings_.repeat_penalty == 1 && settings_.presence_penalty == 0 &&
                    settings_.frequency_penalty == 0;
  if (none) return;
  const auto n = static_cast<std::size_t>(std::max(settings_.repeat_last_n, 0));
  if (settings_.repeat_last_n >= 0 && context.size() > n) context = context.last(n);
  recent_.assign(context.begin(), context.end());
  std::sort(recent_.begin(), recent_.end());
  for (const Token id : recent_) {
    if (id < 0 || static_cast<std::size_t>(id) >= vocabulary_) continue;
    if (repeated_.empty() || repeated_.back().id != id) repeated_.push_back({id, 0});
    ++repeated_.back().repeats;
  }
}

}  // namespace leq
