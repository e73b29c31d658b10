// The constants of the division of attention into spans of positions that determine scratch sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leq::gpu {

inline constexpr int kSpanTokens = 512;  // positions that share a softmax (docs/numerics.md)

// Attention over at most this many pairs is split into spans. Exact: (row, kv head), about two
// blocks per multiprocessor. Tensor cores: (row, head); more, as spans change no output there.
inline constexpr std::int64_t kExactSplit = 263, kTensorSplit = 2112;

// The most records of a launch: those of kTensorSplit pairs at 32K. More rows take more launches.
inline constexpr std::int64_t kMaxRecords = kTensorSplit * 64;

constexpr int spans_of(std::int64_t end) {
  return static_cast<int>((end + kSpanTokens - 1) / kSpanTokens);
}

// Scratch bytes for batches of at most `tokens` rows at positions below `context`: one record per
// span, but at most `most_records` or the records of one row. Monotonic in `context`.
constexpr std::size_t attention_scratch_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t kv_heads, std::int64_t head_dim,
                                              std::int64_t context,
                                              std::int64_t most_records = kMaxRecords) {
  if (heads == 0) return 0;
  const std::int64_t rows =
      std::min(tokens, std::max(kExactSplit / kv_heads, kTensorSplit / heads));
  const std::int64_t row = heads * spans_of(context);  // records of a row
  return static_cast<std::size_t>(std::min(rows * row, std::max(row, most_records)) *
                                  (head_dim + 2)) *
         sizeof(float);
}

}  // namespace leq::gpu
