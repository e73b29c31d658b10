// Logits of random tokens, compared bit for bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "tokenizer/spec.h"

namespace leq::test {

inline std::vector<Token> ids_of(int count, std::int64_t vocab, std::uint64_t seed) {
  Random random(seed);
  std::vector<Token> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<Token>(random.below(static_cast<std::uint32_t>(vocab))));
  }
  return ids;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace leq::test
