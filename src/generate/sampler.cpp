#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

void check_range(bool inside, Setting setting, double found, const char* range) {
  require(inside, setting, " is ", found, ", expected ", range);
}

}  // namespace

void check_settings(const SamplingSettings& s) {
  check_range(s.temperature >= 0 && std::isfinite(s.temperature), Setting{"temperature"},
              s.temperature, "0 (always the most probable token) or more");
  check_range(s.top_k >= -1, Setting{"top_k"}, s.top_k, "1 or more, or 0 for all tokens");
  check_range(s.top_p >= 0 && s.top_p <= 1, Setting{"top_p"}, s.top_p,
              "a number from 0 to 1 (off)");
  check_range(s.min_p >= 0 && s.min_p <= 1, Setting{"min_p"}, s.min_p,
              "a number from 0 (off) to 1");
  check_range(s.repeat_penalty > 0 && std::isfinite(s.repeat_penalty), Setting{"repeat_penalty"},
              s.repeat_penalty, "a number above 0, 1 for none");
  check_range(s.repeat_last_n >= -1, Setting{"repeat_last_n"}, s.repeat_last_n,
              "0 (off) or more, or -1 for all tokens");
  check_range(std::isfinite(s.presence_penalty), Setting{"presence_penalty"}, s.presence_penalty,
              "a finite number");
  check_range(std::isfinite(s.frequency_penalty), Setting{"frequency_penalty"}, s.frequency_penalty,
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
    : settings_(settings), vocabulary_(vocabulary) {
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
  SampleRequest request;
  request.rule = {
      .temperature = settings_.temperature,
      .top_k = std::max(settings_.top_k, 0),
      .top_p = settings_.top_p,
      .min_p = settings_.min_p,
      .repeat_penalty = settings_.repeat_penalty,
      .presence_penalty = settings_.presence_penalty,
      .frequency_penalty = settings_.frequency_penalty,
      .random = philox(settings_.seed, {point.index, point.reply, point.sequence, 0})[0]};
  request.changes = changes_;
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
