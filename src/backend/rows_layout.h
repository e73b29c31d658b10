// A block of activations in one piece of memory: values, codes or pieces, scales, sums of codes, in
// this order. What devices share; how far rows lie apart is each one's own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace leq {

// Of a device: numbers from one row to the next where the block has them, and the bytes that each
// part begins at a multiple of.
struct RowsSpacing {
  std::int64_t value_stride = 0, code_stride = 0, alignment = 0;
};

struct RowsLayout {
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  std::size_t codes_at = 0, scales_at = 0, sums_at = 0;  // bytes from the start; values lie first
  std::size_t bytes = 0;
};
RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format,
                       const RowsSpacing& spacing);

// The block in `memory` of layout.bytes.
Rows make_rows(const RowsLayout& layout, std::int64_t capacity, std::int64_t width,
               const RowsFormat& format, Buffer memory);

// How many 16-bit floats a device makes of each f32 input of a weight; 0 where it takes f32.
using PiecesOf = int (*)(const WeightView& weight);

// What the consumer's weights want of their inputs: codes, and sums of codes where the weights are
// unsigned, or pieces of f32 inputs where the device has a rule for them; values are kept. Throws
// Error where they want different formats.
RowsFormat rows_format(const Linear& consumer, PiecesOf pieces_of = nullptr);

}  // namespace leq
