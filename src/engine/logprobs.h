// How probable a drawn token was, and which others were: from the raw logits of its row, before
// biases, penalties, temperature and cuts.
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
// Of what EngineRequest::on_logits is told: `logits` [tokens][V].
std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top);

}  // namespace leq
