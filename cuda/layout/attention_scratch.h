// How attention's work is cut into spans of positions, as far as it decides what scratch it takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leq::gpu {

// Positions of one softmax: exact (docs/numerics.md); and on tensor cores, where one row's blocks
// are more and shorter.
inline constexpr int kSpanTokens = 512, kTensorSpanTokens = 256;

// So many or fewer are cut into spans: exact (row, kv head) pairs, about two blocks a
// multiprocessor; (row, head) pairs on tensor cores, more, as spans there change no number.
inline constexpr std::int64_t kExactSplit = 263, kTensorSplit = 2112;

// Records of one launch at most, what kTensorSplit pairs leave at 16K: more rows take turns.
inline constexpr std::int64_t kMostRecords = kTensorSplit * 64;

constexpr int spans_of(std::int64_t end, int span_tokens) {
  return static_cast<int>((end + span_tokens - 1) / span_tokens);
}

// Records of at most `rows` rows at once, `most_records` or one row's.
constexpr std::int64_t span_records(std::int64_t rows, std::int64_t heads, int spans,
                                    std::int64_t most_records) {
  const std::int64_t row = heads * spans;
  return std::min(rows * row, std::max(row, most_records));
}

// For batches of at most `tokens` rows and positions below `context`, of either kind: a record of
// each span, or as many as are in use at once. Never less for a longer context.
constexpr std::size_t attention_scratch_bytes(std::int64_t tokens, std::int64_t heads,
                                              std::int64_t kv_heads, std::int64_t head_dim,
                                              std::int64_t context,
                                              std::int64_t most_records = kMostRecords) {
  if (heads == 0) return 0;
  const std::int64_t exact =
      span_records(std::min(tokens, kExactSplit / kv_heads), heads,
                   spans_of(context, kSpanTokens), most_records);
  const std::int64_t tensor =
      span_records(std::min(tokens, kTensorSplit / heads), heads,
                   spans_of(context, kTensorSpanTokens), most_records);
  return static_cast<std::size_t>(std::max(exact, tensor) * (head_dim + 2)) * sizeof(float);
}

}  // namespace leq::gpu
