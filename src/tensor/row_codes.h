// The codes of a row at once, for those that hand them on to other formats.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/weight_layout.h"

namespace leq {

// What code_at gives for each column of row `row` of an integer weight, out [columns].
void read_row_codes(const WeightView& weight, std::int64_t row, std::span<std::int16_t> out);

}  // namespace leq
