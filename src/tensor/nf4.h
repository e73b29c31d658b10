// NF4: 16 levels at the quantiles of a normal distribution (QLoRA, Dettmers et al. 2023, section
// 3), in blocks of 64 columns. A value is level * size. The sizes of 256 blocks (64 rows x 256
// columns) are themselves 8-bit codes u: size = fma(u, step, first).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tensor/pack.h"

namespace leq {

inline constexpr std::int64_t kNf4Block = 64;  // columns that share a size
inline constexpr std::int64_t kNf4SizeColumns =
    256;                            // of 64 rows, whose sizes share first and step
inline constexpr int kNf4Zero = 7;  // code of the level 0

inline constexpr std::array<float, 16> kNf4Levels = {
    -1.0f,      -0.6961928f, -0.5250731f, -0.3949175f, -0.2844414f, -0.1847734f, -0.0910500f, 0.0f,
    0.0795803f, 0.1609302f,  0.2461123f,  0.3379152f,  0.4407098f,  0.5626170f,  0.7229568f,  1.0f};

// Index of the nearest level; the lower one if two are equally near.
int nearest_nf4(float value);

// Chooses sizes, then codes, for finite values [rows][columns]. A block's size is its max |x|,
// rounded to the nearest 8-bit number; its codes are the levels nearest to x / size. A block whose
// max |x| is below 1e-12, or whose size is 0, gets codes of value 0.
ChosenCodes choose_nf4(std::span<const float> values, std::int64_t rows, std::int64_t columns);

}  // namespace leq
