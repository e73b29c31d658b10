// Difference of a model's distributions from those of its base model on the same text: KL
// divergence, agreement of the most likely token, and the change in the true token's probability.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/perplexity.h"
#include "eval/protocol.h"

namespace leq {

// The base model's distribution of one position.
struct BaseDistribution {
  std::vector<double> log_probs;  // [V], exp sums to 1
  double nll = 0;                 // of the true token
  std::int64_t top = 0;           // the most likely token, the first of several
};

// The measurements at one position.
struct RowDivergence {
  double kl = 0;        // sum p (log p - log q) in nats; p the base model's, q the other's
  double nll_base = 0;  // -log p(true token)
  double nll = 0;       // -log q(true token)
  bool same_top = false;

  double delta_p() const;  // q - p of the true token
};

// log softmax of `logits` [V] in double. The nll is NaN where a logit is not finite.
void fill_base(std::span<const float> logits, std::int64_t target, BaseDistribution& out);

// Both have the same vocabulary. The nll is NaN where a logit is not finite.
RowDivergence compare(const BaseDistribution& base, std::span<const float> logits,
                      std::int64_t target);

// A number and its standard error.
struct Estimate {
  double value = 0;
  double error = 0;
};

struct DivergenceResult {
  Estimate kl_mean, kl_median, kl_p99, kl_p999;  // nats
  Estimate same_top1;                            // share of positions, 0 to 1
  Estimate delta_p_mean, delta_p_rms;            // of probabilities, -1 to 1
  Estimate ppl, ppl_base, ppl_ratio;             // by the run's protocol
  std::int64_t windows = 0;
  std::int64_t scored = 0;
  std::vector<double> window_kl = {};  // mean of each window, nats
};

// Collects positions window by window.
class Divergence {
 public:
  // Adds the rows of one window, at least one, in order.
  void add_window(std::vector<RowDivergence> rows);
  // Adds one position to the current window: the logits of both models [V].
  void add(std::span<const float> base_logits, std::span<const float> logits, std::int64_t target);
  void end_window();  // no effect on a window without positions

  const std::vector<std::vector<RowDivergence>>& windows() const { return windows_; }
  std::vector<double> window_kl() const;  // mean of each window, nats

  // Means run over positions; their errors are those of sums over windows (positions of one window
  // are not independent): with window sums S_w of n_w positions and the mean m over N,
  //   error^2 = W/(W-1) sum_w (S_w - m n_w)^2 / N^2,
  // and over positions where there is one window. Quantiles are interpolated between neighbours;
  // their error is half of the distance between the quantiles one binomial standard error of the
  // rank below and above (Woodruff 1952). Throws Error where nothing was added.
  DivergenceResult summarize(Protocol protocol) const;
  // The perplexity of the compared model.
  PerplexityResult perplexity(Protocol protocol) const;

 private:
  std::vector<std::vector<RowDivergence>> windows_;
  std::vector<RowDivergence> open_;
};

// The mean of first - second over paired windows and its standard error: whether two candidates
// measured on the same windows differ. Throws Error where the numbers of windows differ.
Estimate paired_difference(std::span<const double> first, std::span<const double> second);

}  // namespace leq
