#include "eval/window_logits.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::int32_t kSequence = 0;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

WindowLogits::WindowLogits(Session& session, std::span<const Token> tokens, Token window_bos)
    : session_(session), tokens_(tokens), window_bos_(window_bos) {
  const RunLimits& limits = session.limits();
  chunk_ = std::min({limits.batch_tokens, limits.output_tokens, kOutputRows});
}

void WindowLogits::feed(const Window& window, const std::function<void(const ScoredRows&)>& sink) {
  session_.state().drop(kSequence);
  window_.assign(tokens_.begin() + window.first, tokens_.begin() + window.first + window.count);
  if (window_bos_ != kNoToken) window_[0] = window_bos_;
  for (const Token token : window_) {
    require(token >= 0 && token < vocab(), "token id ", token, ": the model has ", vocab(),
            "; its tokenizer belongs to another model");
  }
  const std::int64_t first_row = window.scored_from - window.first - 1;  // scores the first target
  // The window's last token is only predicted and never fed.
  const std::int64_t rows = window.count - 1;
  for (std::int64_t row = 0; row < rows; row += chunk_) {
    const std::int64_t end = std::min(row + chunk_, rows);
    const std::int64_t scored = std::clamp(first_row, row, end);
    forward(row, scored, end);
    if (scored == end) continue;
    sink({.first = scored - first_row,
          .rows = end - scored,
          .vocab = vocab(),
          .logits = logits_.data(),
          .targets = &window_[index(scored + 1)]});
  }
}

// Runs rows [begin, end) of the window, and downloads the logits of rows from `scored` on.
void WindowLogits::forward(std::int64_t begin, std::int64_t scored, std::int64_t end) {
  batch_.clear();
  batch_.add(kSequence, window_.data() + begin, scored - begin, Batch::Want::none);
  batch_.add(kSequence, window_.data() + scored, end - scored, Batch::Want::all);
  const Rows& logits = session_.transformer().forward(batch_, session_.state());
  logits_.resize(index((end - scored) * vocab()));
  if (scored < end) session_.transformer().backend().download(logits, end - scored, logits_);
}

void require_finite_logits(double value, const Window& window, std::int64_t scored_row) {
  require(std::isfinite(value), "token ", window.scored_from - 1 + scored_row,
          " of the text (window at ", window.first,
          "): a logit is not finite; check the file with leq-inspect ", Setting{"verify"},
          ", or try ", Setting{"key_type"}, " f32 ", Setting{"value_type"}, " f32");
}

}  // namespace leq
