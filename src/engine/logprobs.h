// Log probabilities of a drawn token and of the most probable alternatives: from the raw logits of
// its row, before biases, penalties, temperature and truncation.
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
  std::vector<TokenLogprob> top;  // the most probable ones, best first, lowest id on ties
};

// logits [V], `id` below V, `top` in [0, V].
TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top);
// The same from the arguments of EngineRequest::on_logits: `logits` [tokens][V].
std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top);

}  // namespace leq
