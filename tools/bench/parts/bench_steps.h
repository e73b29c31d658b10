// The steps of a speed test on a session, one after another. A prompt is one step; generation takes
// steps of one token per sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/bench.h"
#include "model/session.h"

namespace leq {

class BenchSteps {
 public:
  // Fills the cache to the test's depth with 512 positions of random text, repeated. `sampled`:
  // samples tokens from the logits as in normal use, but discards them, so that the text stays the
  // same. Without `sampled` the logits are not read.
  BenchSteps(Session& session, const BenchTest& test, bool sampled);

  // Returns to the test's first step.
  void rewind();
  // Runs a step and waits until it has completed; returns false if no step is left.
  bool next();
  std::int64_t count() const;  // number of steps in the test
  Backend& backend() { return session_.transformer().backend(); }

 private:
  const Rows& feed(std::span<const Token> tokens);

  Session& session_;
  BenchTest test_;
  std::vector<Token> tokens_;
  std::size_t done_ = 0;  // number of tokens
  Batch batch_;
  std::vector<SampleRequest> requests_;  // one per sequence; empty: not sampled
  std::vector<std::int32_t> drawn_;
};

}  // namespace leq
