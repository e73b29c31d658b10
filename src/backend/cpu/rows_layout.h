// How a block of activations lies in memory on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"

namespace leq::cpu {

struct RowsLayout {
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  std::size_t codes_at = 0, scales_at = 0, sums_at = 0;  // bytes from the start; values lie first
  std::size_t bytes = 0;
};

RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format);
Rows make_rows(const RowsLayout& layout, std::int64_t capacity, std::int64_t width,
               const RowsFormat& format, Buffer memory);

// How much of a row has to be finished before it is quantized: nothing is ever quantized (act
// none), any 128 columns (g128, and tensor but where a code sum covers more), the row, or all rows.
enum class QuantizedUnit : std::uint8_t { nothing, columns_128, row, rows };
QuantizedUnit quantized_unit(const RowsFormat& format);

// What the CPU's matmuls want to read.
RowsFormat rows_format(const Linear& consumer);

}  // namespace leq::cpu
