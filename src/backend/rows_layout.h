// Code shared by the layouts of devices: the layout of a block of activations for given row
// strides, and the input format of a linear's weights.
#pragma once

#include <cstdint>

#include "backend/layout.h"

namespace leq {

// A device's row strides, counted in numbers, and the alignment in bytes at which each part of a
// block begins.
struct RowsSpacing {
  std::int64_t value_stride = 0, code_stride = 0, alignment = 0;
};
RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format,
                       const RowsSpacing& spacing);

// Number of 16-bit floats ("terms") that represent each f32 input of a weight; 0: f32 is used.
using TermsOf = int (*)(const WeightView& weight);

// The input format of the consumer's weights: codes, with sums of codes if weights are unsigned, or
// terms of f32 inputs if the device passes `terms_of`. f32 values are always kept. Throws Error
// if the weights need different formats.
RowsFormat rows_format(const Linear& consumer, TermsOf terms_of = nullptr);

}  // namespace leq
