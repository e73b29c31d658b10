// Sizes of Gated DeltaNet's scratch on a device, in f32 numbers: for the rows of a step, and for
// each chunk of 64 tokens and each value head (DeltaArguments).
#pragma once

#include <cstdint>

#include "cuda/layout/layout.h"

namespace leq::gpu {

inline constexpr int kDeltaChunk = 64;
inline constexpr std::int64_t kDeltaChunkNumbers = 2 * kDeltaChunk * (kDeltaChunk + 1);

// For each token: the outputs of the convolution, and two gates for each value head.
constexpr std::int64_t delta_rows_numbers(std::int64_t tokens, std::int64_t channels,
                                          int value_heads) {
  return round_up_to(tokens * (channels + 2 * value_heads), 4);
}
constexpr std::int64_t delta_chunks_numbers(std::int64_t tokens, int value_heads) {
  return round_up_to(tokens, kDeltaChunk) / kDeltaChunk * value_heads * kDeltaChunkNumbers;
}

}  // namespace leq::gpu
