// Common parts of the layouts of devices: a block of activations with a given distance of rows, and
// the input format of a linear's weights.
#pragma once

#include <cstdint>

#include "backend/layout.h"

namespace leq {

// Of a device: numbers from one row to the next where the block has them, and the bytes that each
// part begins at a multiple of.
struct RowsSpacing {
  std::int64_t value_stride = 0, code_stride = 0, alignment = 0;
};
RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format,
                       const RowsSpacing& spacing);

// How many 16-bit floats a device makes of each f32 input of a weight; 0 where it takes f32.
using TermsOf = int (*)(const WeightView& weight);

// The input format of the consumer's weights: codes, and sums of codes where the weights are
// unsigned, or terms of f32 inputs where the device has a rule for them; f32 values are kept.
// Throws Error where the weights need different formats.
RowsFormat rows_format(const Linear& consumer, TermsOf terms_of = nullptr);

}  // namespace leq
