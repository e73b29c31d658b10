// Memory layout of a block of activations on the CPU.
#pragma once

#include <cstdint>

#include "backend/rows_layout.h"

namespace leq::cpu {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

// The part of a row that has to be finished before it is quantized: nothing is ever quantized, any
// 128 columns (group scales; a stored scale, unless a code sum covers more), the row, or all rows
// of the step (a moving scale).
enum class QuantizedUnit : std::uint8_t { nothing, columns_128, row, rows };
QuantizedUnit quantized_unit(const RowsFormat& format);

// The format that the CPU's matmuls read.
RowsFormat rows_format(const Linear& consumer);

}  // namespace leq::cpu
