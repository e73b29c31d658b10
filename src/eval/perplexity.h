// Perplexity of a model on a text: exp of the mean negative log-likelihood of its tokens. A
// protocol defines the windows, the scored tokens and how the mean is formed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "eval/protocol.h"
#include "eval/window_logits.h"
#include "model/session.h"
#include "tokenizer/tokenizer.h"

namespace leq {

struct PerplexityResult {
  double nll = 0;             // nats per token; hf: mean of the windows' means
  double ppl = 0;             // exp(nll)
  double standard_error = 0;  // of ppl: over window means for hf with two windows or more, else
                              // over tokens; to first order, ppl times the standard error of nll
  std::int64_t windows = 0;
  std::int64_t scored = 0;
};

// Token ids of a text, tokenized as one string; with BOS at the start if the tokenizer adds one.
std::vector<Token> encode_text(const Tokenizer& tokenizer, std::string_view text);

// -log softmax(logits)[target] in double. NaN if a logit is not finite.
double negative_log_likelihood(std::span<const float> logits, std::int64_t target);

// Negative log-likelihoods of a window's scored tokens, in order. `pool` parallelizes the softmax.
// Throws Error naming window and token if a logit is not finite.
std::vector<double> score_window(WindowLogits& logits, ThreadPool& pool, const Window& window);

// Combines the negative log-likelihoods of the scored tokens of all windows.
PerplexityResult summarize(Protocol protocol, std::span<const std::vector<double>> window_nlls);

// Inputs of a run other than the session, whose context must be at least one window.
struct PerplexityRun {
  std::span<const Token> tokens;
  std::span<const Window> windows;
  Protocol protocol = Protocol::hf;
  Token window_bos = kNoToken;  // replaces each window's first token (llamacpp-512)
  // Optional. Called after each window with the number of windows done and the perplexity so far.
  std::function<void(std::int64_t done, double ppl_so_far)> progress = {};
};

// Each window is a separate forward pass with an empty cache. `pool` parallelizes the softmax.
// Throws Error naming the window and token if a logit is not finite.
PerplexityResult measure_perplexity(Session& session, ThreadPool& pool, const PerplexityRun& run);

}  // namespace leq
