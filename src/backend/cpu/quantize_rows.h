// Quantizes finished f32 rows to int8 codes as their consumer wants them (decisions "one quantizer
// arithmetic"): shared by norm, attention and the epilogues of linear.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/backend.h"
#include "backend/cpu/row_kernels.h"

namespace leq::cpu {

// Codes, scale(s) and sums of row `row`, columns [first, first + count) with values x[count].
// act row: the whole row (first = 0, count = width). act g128: any whole groups of 128 columns (the
// last may be short). Pads up to ceil128(width) hold value 0. Returns false where x is not finite.
bool quantize_columns(const RowKernels& kernels, const float* x, std::int64_t row,
                      std::int64_t first, std::int64_t count, Rows& out) noexcept;

// Throws Error naming `site` ("layers.3.down") and the row of a value that is not finite.
[[noreturn]] void fail_not_finite(std::string_view site, std::int64_t row);

}  // namespace leq::cpu
