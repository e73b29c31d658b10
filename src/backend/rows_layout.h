// What the layouts of devices share: a block of activations by how far its rows lie apart, and the
// format that a linear's weights want of their inputs.
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
using PiecesOf = int (*)(const WeightView& weight);

// What the consumer's weights want of their inputs: codes, and sums of codes where the weights are
// unsigned, or terms of f32 inputs where the device has a rule for them; values are kept. Throws
// Error where they want different formats.
RowsFormat rows_format(const Linear& consumer, PiecesOf pieces_of = nullptr);

}  // namespace leq
