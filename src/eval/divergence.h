// Compares a model's distributions with those of its base model on the same text: KL divergence,
// agreement of the most likely token, and the change of the true token's probability. Either the
// base model writes its distributions to a file for later comparisons, or both models run side by
// side.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "eval/perplexity.h"
#include "eval/protocol.h"

namespace leq {

// The base model's distribution at one position.
struct BaseDistribution {
  std::vector<double> log_probs;  // [V]; probabilities sum to 1
  double nll = 0;                 // -log probability of the true token
  std::int64_t top = 0;           // most likely token, lowest id on ties
};

// The measurements at one position.
struct RowDivergence {
  double kl = 0;        // sum p (log p - log q) in nats; p: base model, q: other model
  double nll_base = 0;  // -log p(true token)
  double nll = 0;       // -log q(true token)
  bool same_top = false;

  double delta_p() const;  // q - p of the true token
};

// Computes log softmax of `logits` [V] in double. The nll is NaN if a logit is not finite.
void fill_base(std::span<const float> logits, std::int64_t target, BaseDistribution& out);

// Both models must have the same vocabulary. The nll is NaN if a logit is not finite.
RowDivergence compare(const BaseDistribution& base, std::span<const float> logits,
                      std::int64_t target);

// A number and its standard error.
struct Estimate {
  double value = 0;
  double error = 0;
};

struct DivergenceResult {
  Estimate kl_mean, kl_median, kl_p99, kl_p999;  // nats
  Estimate same_top1;                            // share of positions with equal top tokens
  Estimate delta_p_mean, delta_p_rms;            // change of the true token's probability, -1 to 1
  Estimate ppl, ppl_base, ppl_ratio;             // according to the run's protocol
  std::int64_t windows = 0;
  std::int64_t scored = 0;
  std::vector<double> window_kl = {};  // mean KL of each window, nats
};

// Collects the measurements of positions, window by window.
class Divergence {
 public:
  // Adds the rows of one window in order; there must be at least one.
  void add_window(std::vector<RowDivergence> rows);
  // Adds one position to the current window, given the logits of both models [V].
  void add(std::span<const float> base_logits, std::span<const float> logits, std::int64_t target);
  void end_window();  // no effect if the window has no positions

  const std::vector<std::vector<RowDivergence>>& windows() const { return windows_; }
  std::vector<double> window_kl() const;  // mean KL of each window, nats

  // Means are over positions. Their errors are computed over windows, because positions of one
  // window are not independent: with window sums S_w of n_w positions and the mean m over N,
  // error^2 = W/(W-1) sum_w (S_w - m n_w)^2 / N^2; with only one window, over positions. Quantiles
  // are interpolated between neighbours. Their error is half of the distance between the quantiles
  // one binomial standard error of the rank below and above (Woodruff 1952). Throws Error if there
  // are no positions.
  DivergenceResult summarize(Protocol protocol) const;
  // The perplexity of the model that is compared with the base.
  PerplexityResult perplexity(Protocol protocol) const;

 private:
  std::vector<std::vector<RowDivergence>> windows_;
  std::vector<RowDivergence> open_;
};

class DivergenceBaseReader;  // eval/divergence_base.h
struct DivergenceKey;

struct WrittenBase {
  PerplexityResult result;  // perplexity of the base model
  std::uint64_t file_bytes = 0;
};

// Measures the perplexity as measure_perplexity does and writes the distribution of every scored
// position. `key` describes the run and must have the counts of `run`.
WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key);

// Compares the model of `session` with a base file. `key` describes this run; throws Error naming
// what differs from the file. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key);

// Compares the model of `session` with that of `base`, window by window in one process, without
// quantizing the distributions. Both sessions need a context and output rows for at least one
// window. Calls run.progress with the mean KL so far.
Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run);

// The mean of first - second over paired windows and its standard error, which tells whether two
// models measured on the same windows differ. Throws Error if the numbers of windows differ.
Estimate paired_difference(std::span<const double> first, std::span<const double> second);

}  // namespace leq
