// Reads single rows of a stored table as f32, for embeddings.
#pragma once

#include <cstdint>

#include "tensor/weight_layout.h"

namespace leq::cpu {

// out[columns] = row `row` of the table; a code becomes code * scale, one f32 product.
void gather_row(const WeightView& table, std::int64_t row, float* out);

}  // namespace leq::cpu
