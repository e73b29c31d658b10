// How attention's work is cut into spans of positions, as far as it decides what scratch it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leq::gpu {

inline constexpr int kSpanTokens = 512;  // positions of one softmax step (docs/numerics.md)

// So many or fewer are cut into spans: exact (row, kv head) pairs, about two blocks a
// multiprocessor; (row, head) pairs on tensor cores, more, as spans there change no number.
inline constexpr std::int64_t kExactSplit = 263, kTensorSplit = 2112;

constexpr int spans_of(std::int64_t end) {
  return static_cast<int>((end + kSpanTokens - 1) / kSpanTokens);
}

// For batches of at most `tokens` rows and positions below `context`: a record of each span.
constexpr std::size_t attention_scratch_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t kv_heads, std::int64_t head_dim,
                                              std::int64_t context) {
  if (heads == 0) return 0;
  const std::int64_t rows =
      std::min(tokens, std::max(kExactSplit / kv_heads, kTensorSplit / heads));
  return static_cast<std::size_t>(rows * heads * spans_of(context) * (head_dim + 2)) *
         sizeof(float);
}

}  // namespace leq::gpu
