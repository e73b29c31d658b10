// Feeds the windows of a text to a model and passes the logits of scored tokens to the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/protocol.h"
#include "model/session.h"

namespace leq {

// Number of rows with logits per forward pass.
inline constexpr std::int64_t kOutputRows = 512;

// Consecutive scored rows of a window.
struct ScoredRows {
  std::int64_t first = 0;  // index of the first row among the scored rows of the window
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  const float* logits = nullptr;   // [rows][V]
  const Token* targets = nullptr;  // [rows] the tokens that they predict

  std::span<const float> row(std::int64_t index) const {
    return {logits + index * vocab, static_cast<std::size_t>(vocab)};
  }
};

// Reuses its buffers for all windows. Every window starts with an empty cache.
class WindowLogits {
 public:
  // `window_bos` replaces each window's first token; kNoToken: no replacement.
  WindowLogits(Session& session, std::span<const Token> tokens, Token window_bos);

  // Calls `sink` with the window's scored rows, in order, in one or more parts. Throws Error if a
  // token is not in the model's vocabulary.
  void feed(const Window& window, const std::function<void(const ScoredRows&)>& sink);

 private:
  std::int64_t vocab() const { return session_.transformer().config().vocab; }
  void forward(std::int64_t begin, std::int64_t scored, std::int64_t end);

  Session& session_;
  std::span<const Token> tokens_;
  Token window_bos_;
  std::int64_t chunk_ = 0;
  std::vector<Token> window_;
  Batch batch_;
  std::vector<float> logits_;  // [rows of a chunk][V]
};

// Throws Error naming token and window if `value`, computed from the token's logits, is not finite.
void require_finite_logits(double value, const Window& window, std::int64_t scored_row);

}  // namespace leq
