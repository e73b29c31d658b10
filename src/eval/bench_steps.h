// The steps of a speed test on a session, one after another: prompts whole, generation a token of
// each sequence at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/bench.h"
#include "model/session.h"

namespace leq {

class BenchSteps {
 public:
  // Fills the cache to the test's depth with random text, its first 512 positions repeated.
  // `sampled`: generated tokens are drawn from the logits as for a user (and then not used: the
  // text stays the same); else the logits stay where they are.
  BenchSteps(Session& session, const BenchTest& test, bool sampled);

  // Back to the test's first step.
  void rewind();
  // Runs a step and waits for it; false where none is left.
  bool next();
  std::int64_t count() const;  // of steps in the test
  Backend& backend() { return session_.transformer().backend(); }

 private:
  const Rows& feed(std::span<const Token> tokens);

  Session& session_;
  BenchTest test_;
  std::vector<Token> tokens_;
  std::size_t done_ = 0;  // tokens
  Batch batch_;
  std::vector<SampleRequest> requests_;  // one for each sequence, or none
  std::vector<std::int32_t> drawn_;
};

}  // namespace leq
