// Hadamard rotation of single rows, in one written order of additions (docs/numerics.md).
#pragma once

#include <cstdint>

#include "backend/backend.h"

namespace leq::cpu {

// Throws Error where `block` is no power of two that divides the width.
void require_rotation(std::int64_t width, std::int64_t block);

// `row` [W] into the rotated stream or back, in place.
void rotate_row(const RotationTable& rotation, Turn turn, float* row) noexcept;

}  // namespace leq::cpu
