// Time of steps on this machine, learned from the steps themselves. It bounds the prompt tokens and
// draft tokens of a step: it affects speed, never a token.
#pragma once

#include <array>
#include <cstdint>

namespace leq {

class StepCosts {
 public:
  // Records a step's time: `outputs` rows with logits (next tokens and drafts) and `prompt_tokens`
  // other rows.
  void record(std::int64_t outputs, std::int64_t prompt_tokens, double seconds);

  // Seconds of a step without prompts: measured; between measured sizes interpolated; beyond them
  // that of the largest one, so that larger steps are tried. Costs that were not measured for long
  // are reduced, so that they are tried again. 0 where nothing is known.
  double seconds(std::int64_t outputs) const;

  // The number of prompt tokens that `outputs` rows can take along if the step may take `factor`
  // times as long as without them, by the cost of earlier mixed steps: at least kFewest, also while
  // nothing is known, and at most twice the last number, since the cost of a row may grow with
  // their number.
  std::int64_t prompt_tokens_within(double factor, std::int64_t outputs) const;
  static constexpr std::int64_t kFewest = 16;

 private:
  struct SizeCost {
    double seconds = 0;  // moving mean
    double weight = 1;   // falls with steps of other sizes
    std::int64_t times = 0;
    double weighted() const { return weight * seconds; }
    void add(double value);
  };
  static constexpr std::size_t kSizes = 14;  // 1, 2, 3-4, 5-8, 9-16 ... rows
  // As seconds(); if no step was without prompts, the time of a mixed step with few prompt tokens.
  double seconds_without_prompts(std::int64_t outputs) const;

  std::array<SizeCost, kSizes> of_size_ = {};
  double few_tokens_seconds_ = 0;  // of the last mixed step with at most kFewest prompt tokens
  double mixed_token_ = 0;         // seconds, a moving mean
  std::int64_t mixed_tokens_ = 0;  // of the last mixed step
};

}  // namespace leq
