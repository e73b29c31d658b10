// Hadamard rotation of single rows, in a fixed order of additions (docs/numerics.md).
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace leq::cpu {

// Rotates `row` [W] in place, into the rotated stream or out of it.
void rotate_row(const RotationTable& rotation, Direction direction, float* row) noexcept;

}  // namespace leq::cpu
