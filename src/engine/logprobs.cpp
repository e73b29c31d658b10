#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace leq {

TokenLogprobs token_logprobs(std::span<const float> logits, Token id, int top) {
  const double most = double{*std::ranges::max_element(logits)};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  const double log_sum = most + std::log(sum);
  const auto logprob = [&](Token of) {
    return static_cast<float>(double{logits[static_cast<std::size_t>(of)]} - log_sum);
  };
  TokenLogprobs result;
  result.id = id;
  result.logprob = logprob(id);
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto count = std::min(static_cast<std::ptrdiff_t>(top), std::ssize(ids));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](Token a, Token b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    result.top.push_back(
        {ids[static_cast<std::size_t>(i)], logprob(ids[static_cast<std::size_t>(i)])});
  }
  return result;
}

std::vector<TokenLogprobs> token_logprobs(std::span<const Token> tokens,
                                          std::span<const float> logits, int top) {
  std::vector<TokenLogprobs> all;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t vocabulary = logits.size() / tokens.size();
    all.push_back(token_logprobs(logits.subspan(i * vocabulary, vocabulary), tokens[i], top));
  }
  return all;
}

}  // namespace leq
