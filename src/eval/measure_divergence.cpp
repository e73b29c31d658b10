#include "eval/measure_divergence.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// Fills in the base distribution of a scored row of the current window; called from any thread.
using BaseRow = std::function<void(std::int64_t scored_row, Token target, BaseDistribution& out)>;

std::vector<RowDivergence> compare_window(WindowLogits& logits, ThreadPool& pool,
                                          const Window& window, const BaseRow& base_row) {
  std::vector<RowDivergence> result(index(window.scored()));
  std::vector<BaseDistribution> scratch(index(pool.threads()));
  logits.feed(window, [&](const ScoredRows& rows) {
    pool.run(rows.rows, [&](std::int64_t row, int worker) {
      BaseDistribution& base = scratch[index(worker)];
      base_row(rows.first + row, rows.targets[row], base);
      RowDivergence& out = result[index(rows.first + row)];
      out = compare(base, rows.row(row), rows.targets[row]);
      require_finite_logits(out.nll, window, rows.first + row);
    });
  });
  return result;
}

// Collects the rows of all windows and reports progress.
class Collector {
 public:
  explicit Collector(const PerplexityRun& run) : run_(run) {}

  void add(std::vector<RowDivergence> rows) {
    for (const RowDivergence& row : rows) sum_ += row.kl;
    scored_ += static_cast<double>(rows.size());
    divergence_.add_window(std::move(rows));
    if (run_.progress) run_.progress(std::ssize(divergence_.windows()), sum_ / scored_);
  }
  Divergence take() { return std::move(divergence_); }

 private:
  const PerplexityRun& run_;
  Divergence divergence_;
  double sum_ = 0, scored_ = 0;
};

}  // namespace

WrittenBase write_divergence_base(Session& session, ThreadPool& pool, const PerplexityRun& run,
                                  const std::filesystem::path& path, const DivergenceKey& key) {
  ensure(!run.windows.empty(), "perplexity: no window to measure");
  DivergenceBaseWriter writer(path, key);
  WindowLogits logits(session, run.tokens, run.window_bos);
  const std::size_t row_bytes = writer.row_bytes();
  std::vector<std::byte> packed;
  std::vector<std::vector<double>> nlls;
  for (const Window& window : run.windows) {
    auto& window_nlls = nlls.emplace_back(index(window.scored()));
    logits.feed(window, [&](const ScoredRows& rows) {
      packed.resize(index(rows.rows) * row_bytes);
      pool.run(rows.rows, [&](std::int64_t row, int) {
        double& nll = window_nlls[index(rows.first + row)];
        nll = writer.encode(rows.row(row), rows.targets[row],
                            std::span(packed).subspan(index(row) * row_bytes, row_bytes));
        require_finite_logits(nll, window, rows.first + row);
      });
      writer.add_rows(packed);
    });
    if (run.progress) run.progress(std::ssize(nlls), summarize(run.protocol, nlls).ppl);
  }
  WrittenBase written;
  written.result = summarize(run.protocol, nlls);
  written.file_bytes = writer.finish();
  return written;
}

Divergence measure_divergence(Session& session, ThreadPool& pool, const PerplexityRun& run,
                              const DivergenceBaseReader& base, const DivergenceKey& key) {
  ensure(!run.windows.empty(), "KL divergence: no window to measure");
  base.require_same(key);
  WindowLogits logits(session, run.tokens, run.window_bos);
  Collector collector(run);
  std::int64_t first = 0;  // index of the window's first row in the file
  for (const Window& window : run.windows) {
    collector.add(compare_window(
        logits, pool, window,
        [&](std::int64_t row, Token, BaseDistribution& out) { base.decode(first + row, out); }));
    base.drop(first, window.scored());
    first += window.scored();
  }
  return collector.take();
}

Divergence measure_divergence(Session& base, Session& session, ThreadPool& pool,
                              const PerplexityRun& run) {
  ensure(!run.windows.empty(), "KL divergence: no window to measure");
  WindowLogits base_logits(base, run.tokens, run.window_bos);
  WindowLogits logits(session, run.tokens, run.window_bos);
  const auto vocab = index(base.transformer().config().vocab);
  std::vector<float> kept;  // [scored rows of a window][V]
  Collector collector(run);
  for (const Window& window : run.windows) {
    kept.clear();
    base_logits.feed(window, [&](const ScoredRows& rows) {
      kept.insert(kept.end(), rows.logits, rows.logits + rows.rows * rows.vocab);
    });
    collector.add(compare_window(
        logits, pool, window, [&](std::int64_t row, Token target, BaseDistribution& out) {
          fill_base(std::span(kept).subspan(index(row) * vocab, vocab), target, out);
          require_finite_logits(out.nll, window, row);
        }));
  }
  return collector.take();
}

}  // namespace leq
