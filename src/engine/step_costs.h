// Durations of steps on this machine, learned from the steps themselves. They limit the prompt
// tokens and draft tokens of a step, so that they affect the speed but never a token.
#pragma once

#include <array>
#include <cstdint>

namespace leq {

class StepCosts {
 public:
  // Records the duration of a step with `outputs` rows that have logits (next tokens and drafts)
  // and `prompt_tokens` other rows.
  void saw(std::int64_t outputs, std::int64_t prompt_tokens, double seconds);

  // Seconds of a step without prompts: measured, or interpolated between measured sizes. For larger
  // sizes it is the time of the largest measured size. Costs measured long ago are reduced, so that
  // such steps are tried (again). 0 if nothing was measured.
  double seconds(std::int64_t outputs) const;

  // The number of prompt tokens that a step with `outputs` other rows can add if it may take
  // `factor` times as long as without them. It is based on earlier mixed steps, is at least
  // kFewest, also before the first measurement, and at most twice the last number, because the cost
  // of a row may grow with the number of rows.
  std::int64_t prompt_tokens_within(double factor, std::int64_t outputs) const;
  static constexpr std::int64_t kFewest = 16;

 private:
  struct Seen {
    double seconds = 0;  // moving mean of a step's duration
    double belief = 1;   // trust in the mean; falls with steps of other sizes
    std::int64_t times = 0;
    double believed() const { return belief * seconds; }
    void add(double value);
  };
  static constexpr std::size_t kSizes = 14;  // for 1, 2, 3-4, 5-8, 9-16 ... rows
  // Like seconds(), but if no step was without prompts, the time of a step with few prompt tokens.
  double seconds_without_prompts(std::int64_t outputs) const;

  std::array<Seen, kSizes> of_size_ = {};
  double few_tokens_seconds_ = 0;  // time of the last step with few prompt tokens
  double mixed_token_ = 0;         // seconds of one prompt token, a moving mean
  std::int64_t mixed_tokens_ = 0;  // prompt tokens of the last mixed step
};

}  // namespace leq
