#include "eval/bench_steps.h"

#include <algorithm>

#include "backend/checks.h"
#include "base/error.h"
#include "base/random.h"
#include "model/sampling_settings.h"

namespace leq {
namespace {

constexpr std::int64_t kTextPositions = 512;  // random text; repeated up to the depth

// The default sampling settings of leq-run.
SampleRule usual_rule() {
  SampleRule rule = sample_rule(SamplingSettings{});
  rule.random = 1u << 31;
  return rule;
}

std::vector<Token> random_tokens(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  Random random(seed);
  std::vector<Token> tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) {
    token = static_cast<Token>(random.below(static_cast<std::uint32_t>(vocab)));
  }
  return tokens;
}

// Fills positions 0 ... depth - 1 of a sequence.
void fill_cache(Session& session, const BenchTest& test, std::int32_t sequence) {
  const std::int64_t vocab = session.transformer().config().vocab;
  session.state().drop(sequence);
  if (test.depth == 0) return;
  const std::int64_t fed = std::min(test.depth, kTextPositions);
  session.feed(sequence, random_tokens(fed, vocab, 1 + static_cast<std::uint64_t>(sequence)));
  if (fed < test.depth) session.state().repeat(sequence, test.depth);
  session.state().only_checkpoint(sequence);
}

}  // namespace

BenchSteps::BenchSteps(Session& session, const BenchTest& test, bool sampled)
    : session_(session),
      test_(test),
      tokens_(random_tokens(test.tokens(), session.transformer().config().vocab, 0)) {
  require(test.tokens() > 0, ErrorKind::bad_setting, "bench: nothing to run");
  ensure(test.sequences == 1 || test.prompt == 0, "bench: ", test.sequences,
         " sequences: expected no prompt, found ", test.prompt, " tokens");
  for (std::int32_t sequence = 0; sequence < test.sequences; ++sequence) {
    fill_cache(session, test, sequence);
  }
  if (!sampled) return;
  requests_.assign(static_cast<std::size_t>(test.sequences), {usual_rule(), {}});
  drawn_.resize(requests_.size());
}

void BenchSteps::rewind() {
  done_ = 0;
  for (std::int32_t sequence = 0; sequence < test_.sequences; ++sequence) {
    const bool kept = session_.state().restore(sequence, test_.depth) == test_.depth;
    if (!kept) fill_cache(session_, test_, sequence);
  }
}

bool BenchSteps::next() {
  if (done_ == tokens_.size()) return false;
  const auto prompt = static_cast<std::size_t>(test_.prompt);
  const auto step = done_ < prompt ? prompt : static_cast<std::size_t>(test_.sequences);
  const Rows& logits = feed(std::span(tokens_).subspan(done_, step));
  if (requests_.empty() || done_ < prompt) {
    backend().synchronize();
  } else {
    backend().sample(logits, requests_, drawn_);
    require_drawn(backend(), logits, drawn_);
  }
  done_ += step;
  return true;
}

std::int64_t BenchSteps::count() const { return (test_.prompt > 0 ? 1 : 0) + test_.generated; }

// Feeds several tokens of one sequence, or one token of each sequence.
const Rows& BenchSteps::feed(std::span<const Token> tokens) {
  if (test_.sequences == 1) return session_.advance(0, tokens);
  batch_.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    batch_.add(static_cast<std::int32_t>(i), &tokens[i], 1, Batch::Want::last);
  }
  return session_.transformer().forward(batch_, session_.state());
}

}  // namespace leq
