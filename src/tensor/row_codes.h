// Reads the codes of a whole row, for code that converts them to other formats.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/weight_layout.h"

namespace leq {

// Writes the result of code_at for each column of a row of an integer weight to out [columns].
void read_row_codes(const WeightView& weight, std::int64_t row, std::span<std::int16_t> out);

}  // namespace leq
