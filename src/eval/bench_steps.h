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
  BenchSteps(Session& session, const BenchTest& test);

  // Back to the test's first step.
  void rewind();
  // Runs a step and waits for its logits; false where none is left.
  bool next();
  std::int64_t count() const;  // of steps in the test
  Backend& backend() { return session_.transformer().backend(); }

 private:
  void feed(std::span<const Token> tokens);

  Session& session_;
  BenchTest test_;
  std::vector<Token> tokens_;
  std::size_t done_ = 0;  // tokens
  Batch batch_;
};

}  // namespace leq
