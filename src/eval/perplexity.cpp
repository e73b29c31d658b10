#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace leq {
namespace {

// Feeds one window after another and keeps the buffers.
class WindowScorer {
 public:
  WindowScorer(Session& session, ThreadPool& pool, const PerplexityRun& run)
      : session_(session), pool_(pool), run_(run) {
    const RunLimits& limits = session.limits();
    chunk_ = std::min({limits.batch_tokens, limits.output_tokens, kOutputRows});
  }

  // Negative log-likelihoods of the tokens that the window scores, in order.
  std::vector<double> score(const Window& window) {
    session_.cache().clear(kSequence);
    window_.assign(run_.tokens.begin() + window.first,
                   run_.tokens.begin() + window.first + window.count);
    if (run_.window_bos != kNoToken) window_[0] = run_.window_bos;
    const std::int64_t first_row = window.scored_from - window.first - 1;  // its logits score
    std::vector<double> nlls(static_cast<std::size_t>(window.scored()));
    // The last token is predicted, never fed.
    const std::int64_t rows = window.count - 1;
    for (std::int64_t row = 0; row < rows; row += chunk_) {
      const std::int64_t end = std::min(row + chunk_, rows);
      const std::int64_t scored = std::clamp(first_row, row, end);
      feed(row, scored, end);
      if (scored < end) score_rows(window, scored, end, &nlls[index(scored - first_row)]);
    }
    return nlls;
  }

 private:
  static constexpr std::int32_t kSequence = 0;

  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

  // Rows [begin, end) of the window; logits of those from `scored` on land in logits_.
  void feed(std::int64_t begin, std::int64_t scored, std::int64_t end) {
    batch_.clear();
    batch_.add(kSequence, window_.data() + begin, scored - begin, Batch::Want::none);
    batch_.add(kSequence, window_.data() + scored, end - scored, Batch::Want::all);
    const Rows& logits = session_.transformer().forward(batch_, session_.cache());
    logits_.resize(index((end - scored) * vocab()));
    if (scored < end) session_.transformer().backend().download(logits, end - scored, logits_);
  }

  void score_rows(const Window& window, std::int64_t begin, std::int64_t end, double* nlls) {
    pool_.run(end - begin, [&](std::int64_t row, int) {
      const std::span<const float> logits(&logits_[index(row * vocab())], index(vocab()));
      const std::int64_t target = window_[index(begin + row + 1)];
      require(target < vocab(), "token id ", target, ": the model has ", vocab(),
              "; its tokenizer belongs to another model");
      nlls[row] = negative_log_likelihood(logits, target);
      require(std::isfinite(nlls[row]), "token ", window.first + begin + row,
              " of the text (window at ", window.first,
              "): a logit is not finite; check the file with leq-inspect --verify, or try -ctk f32 "
              "-ctv f32");
    });
  }

  std::int64_t vocab() const { return session_.transformer().config().vocab; }

  Session& session_;
  ThreadPool& pool_;
  const PerplexityRun& run_;
  std::int64_t chunk_ = 0;
  std::vector<Token> window_;
  Batch batch_;
  std::vector<float> logits_;  // [rows of a chunk][V]
};

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard error of the mean of independent values; 0 for fewer than two.
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
  require(!run.windows.empty(), "perplexity: no window to measure");
  WindowScorer scorer(session, pool, run);
  std::vector<std::vector<double>> nlls;
  double sum = 0, weight = 0;  // of means for hf, of tokens else
  for (const Window& window : run.windows) {
    nlls.push_back(scorer.score(window));
    const double share =
        run.protocol == Protocol::hf ? 1.0 : static_cast<double>(nlls.back().size());
    sum += mean_of(nlls.back()) * share;
    weight += share;
    if (run.progress) run.progress(std::ssize(nlls), std::exp(sum / weight));
  }
  return summarize(run.protocol, nlls);
}

}  // namespace leq
