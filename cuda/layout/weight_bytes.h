// Offsets of a weight's parts in one block of device memory, in the order of layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/weight_layout.h"

namespace leq::gpu {

struct WeightBytes {
  std::size_t scales_at = 0, zeros_at = 0, bytes = 0;  // offsets; codes are first
};
// Throws Error for schemes without a kernel (nf4, b1); the message names a supported scheme.
WeightBytes weight_bytes(const WeightView& weight);

// Returns the number of scales per row: the row's groups, or 1.
std::int64_t groups_of(const WeightView& weight);
// Returns the bytes per number of a float weight.
std::int64_t number_bytes(const WeightView& weight);

}  // namespace leq::gpu
