// The numbers of a rotary table, which each device puts into its own memory.
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace leq {

// `count` rows [2][d/2] of the table, from position `first` on:
// angle = float(pos) * inv; c, s = float(cos(double(angle))), float(sin(double(angle))), each times
// the attention factor
void fill_rope_rows(const RopeTable& rope, std::int64_t first, std::int64_t count, float* rows);

}  // namespace leq
