// Log probabilities of a drawn token and of the most probable alternatives, computed from the raw
// logits before biases, penalties, temperature and truncation.
#pragma once

#include <span>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

struct TokenLogprob {
  Token id = kNoToken;
  float logprob = 0;  // natural logarithm of its share of softmax(logits)
};

struct TokenLogprobs : TokenLogprob {
  std::vector<TokenLogprob> top;  // most probable tokens, best first; on ties lowest id first
};

// `logits` has V values, `id` is below V, and `top` is in [0, V].
TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top);
// Like token_logprobs, for the arguments of EngineRequest::on_logits; `logits` is [tokens][V].
std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top);

}  // namespace leq
