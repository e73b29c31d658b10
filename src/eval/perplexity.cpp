#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace leq {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard error of the mean of independent values; 0 for fewer than two values.
double error_of_mean(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

}  // namespace

std::vector<Token> encode_text(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.parse_special = true, .add_bos = tokenizer.add_bos()});
}

double negative_log_likelihood(std::span<const float> logits, std::int64_t target) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return std::log(sum) + (largest - static_cast<double>(logits[static_cast<std::size_t>(target)]));
}

std::vector<double> score_window(WindowLogits& logits, ThreadPool& pool, const Window& window) {
  std::vector<double> nlls(static_cast<std::size_t>(window.scored()));
  logits.feed(window, [&](const ScoredRows& rows) {
    pool.run(rows.rows, [&](std::int64_t row, int) {
      double& nll = nlls[static_cast<std::size_t>(rows.first + row)];
      nll = negative_log_likelihood(rows.row(row), rows.targets[row]);
      require_finite_logits(nll, window, rows.first + row);
    });
  });
  return nlls;
}

PerplexityResult summarize(Protocol protocol, std::span<const std::vector<double>> window_nlls) {
  std::vector<double> tokens, means;
  for (const auto& nlls : window_nlls) {
    tokens.insert(tokens.end(), nlls.begin(), nlls.end());
    means.push_back(mean_of(nlls));
  }
  const bool by_window = protocol == Protocol::hf;
  PerplexityResult result;
  result.windows = std::ssize(window_nlls);
  result.scored = std::ssize(tokens);
  result.nll = mean_of(by_window ? means : tokens);
  result.ppl = std::exp(result.nll);
  result.standard_error =
      result.ppl * error_of_mean(by_window && means.size() > 1 ? means : tokens);
  return result;
}

PerplexityResult measure_perplexity(Session& session, ThreadPool& pool, const PerplexityRun& run) {
  ensure(!run.windows.empty(), "perplexity: no window to measure");
  WindowLogits logits(session, run.tokens, run.window_bos);
  std::vector<std::vector<double>> nlls;
  double sum = 0, weight = 0;  // sums over window means for hf, otherwise over tokens
  for (const Window& window : run.windows) {
    nlls.push_back(score_window(logits, pool, window));
    const double share =
        run.protocol == Protocol::hf ? 1.0 : static_cast<double>(nlls.back().size());
    sum += mean_of(nlls.back()) * share;
    weight += share;
    if (run.progress) run.progress(std::ssize(nlls), std::exp(sum / weight));
  }
  return summarize(run.protocol, nlls);
}

}  // namespace leq
