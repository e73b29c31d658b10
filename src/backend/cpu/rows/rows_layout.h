// Memory layout of a block of activations on the CPU.
#pragma once

#include <cstdint>

#include "backend/layout.h"

namespace leq::cpu {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

// The part of a row that must be complete before it is quantized. nothing: never quantized;
// columns_128: any 128 columns (group scales, or a stored scale unless a sum covers more columns);
// row: the whole row; rows: all rows of the step (a moving scale).
enum class QuantizedUnit : std::uint8_t { nothing, columns_128, row, rows };
QuantizedUnit quantized_unit(const RowsFormat& format);

// The format that the CPU's matmuls read.
RowsFormat rows_format(const Linear& consumer);

}  // namespace leq::cpu
