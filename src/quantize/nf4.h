// The sixteen levels of NF4 (Dettmers et al. 2023, QLoRA) and the double quantization of scales.
#pragma once

#include <array>
#include <span>

namespace leq {

// Quantiles of the normal distribution, scaled to [-1, 1], ascending; level 7 is 0.
const std::array<float, 16>& nf4_levels();

// Rounds the absmax of blocks in place to what 8 bits hold: for each 256 of them the mean, and
// codes of value (a - mean) / step with step = max |a - mean| / 127. Where that misses a by more
// than an eighth, a stays as it is.
void double_quantize(std::span<float> absmax);

}  // namespace leq
