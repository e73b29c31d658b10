// How a block of activations lies in memory on the CPU.
#pragma once

#include <cstdint>

#include "backend/rows_layout.h"

namespace leq::cpu {

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);

// How much of a row has to be finished before it is quantized: nothing is ever quantized, any 128
// columns (scales of groups; a stored scale, but where a code sum covers more), the row, or all
// rows of the step (a moving scale).
enum class QuantizedUnit : std::uint8_t { nothing, columns_128, row, rows };
QuantizedUnit quantized_unit(const RowsFormat& format);

// What the CPU's matmuls want to read.
RowsFormat rows_format(const Linear& consumer);

}  // namespace leq::cpu
