// Hadamard rotation of single rows, in one written order of additions (docs/numerics.md).
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace leq::cpu {

// Rotates `row` [W] into the rotated stream or back, in place.
void rotate_row(const RotationTable& rotation, Direction direction, float* row) noexcept;

}  // namespace leq::cpu
