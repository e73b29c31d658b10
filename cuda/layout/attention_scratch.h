// How attention is split into spans of positions, as far as that determines its scratch size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leq::gpu {

inline constexpr int kSpanTokens = 512;  // positions of one softmax step (docs/numerics.md)

// Up to so many pairs are split into spans: exact (row, kv head) pairs, about two blocks per
// multiprocessor; (row, head) pairs on tensor cores, more, as spans there change no number.
inline constexpr std::int64_t kExactSplit = 263, kTensorSplit = 2112;

// The most records of one launch, those of kTensorSplit pairs at 32K: more rows run in turns.
inline constexpr std::int64_t kMostRecords = kTensorSplit * 64;

constexpr int spans_of(std::int64_t end) {
  return static_cast<int>((end + kSpanTokens - 1) / kSpanTokens);
}

// For batches of at most `tokens` rows and positions below `context`: a record per span, or as many
// as are in use at once, `most_records` or one row's. Monotonic in `context`.
constexpr std::size_t attention_scratch_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t kv_heads, std::int64_t head_dim,
                                              std::int64_t context,
                                              std::int64_t most_records = kMostRecords) {
  if (heads == 0) return 0;
  const std::int64_t rows =
      std::min(tokens, std::max(kExactSplit / kv_heads, kTensorSplit / heads));
  const std::int64_t row = heads * spans_of(context);  // records
  return static_cast<std::size_t>(std::min(rows * row, std::max(row, most_records)) *
                                  (head_dim + 2)) *
         sizeof(float);
}

}  // namespace leq::gpu
