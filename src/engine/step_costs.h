// What steps cost on this machine, learned from the steps themselves. It decides how much a step
// takes in and how far ahead is drafted: speed, never a token.
#pragma once

#include <array>
#include <cstdint>

namespace leq {

class StepCosts {
 public:
  // A step of so many rows that want logits (those who write, and their drafts) and so many other
  // tokens of prompts.
  void saw(std::int64_t outputs, std::int64_t prompt_tokens, double seconds);

  // Seconds of a step without prompts: learned where such steps were seen, else in proportion
  // between those that were, and taken as free beyond them, so that they are tried. What was not
  // seen for long is taken as less, so that it is tried again. 0 where nothing is known.
  double seconds(std::int64_t outputs) const;

  // Tokens of prompts that may join `outputs` rows so that the step takes at most `factor` times as
  // long as without them, by what such mixed steps cost: kFewest while nothing is known and at
  // least, and at most twice as many as the last time, since more rows cost more than in
  // proportion.
  std::int64_t prompt_tokens_within(double factor, std::int64_t outputs) const;
  static constexpr std::int64_t kFewest = 16;

 private:
  struct Seen {
    double seconds = 0;  // moving mean
    double belief = 1;   // falls while steps of other sizes are taken
    std::int64_t times = 0;
    double believed() const { return belief * seconds; }
    void add(double value);
  };
  static constexpr std::size_t kSizes = 14;  // 1, 2, 3-4, 5-8, 9-16 ... rows
  // As seconds(); where no step was without prompts, as one with few of their tokens.
  double seconds_without_prompts(std::int64_t outputs) const;

  std::array<Seen, kSizes> of_size_ = {};
  double few_tokens_seconds_ = 0;  // of the last mixed step of at most kFewest
  double mixed_token_ = 0;         // seconds, a moving mean
  std::int64_t mixed_tokens_ = 0;  // of the last mixed step
};

}  // namespace leq
