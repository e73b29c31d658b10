// The signs of random Hadamard rotations: a pure function of a seed, the same wherever a model is
// rotated and wherever it runs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace leq {

// What is rotated; each has its own signs.
enum class RotationSpace : std::uint32_t {
  residual,     // the stream between the blocks, [W]
  head_values,  // values within a head, [d], the same for all heads
};

// The largest power of two that divides `size` > 0: the columns that one Hadamard matrix mixes.
std::int64_t hadamard_block(std::int64_t size);

// [count] of +1 and -1: the top bit of word i % 4 of philox(seed, {i / 4, space, 0, 0}).
std::vector<float> rotation_signs(std::uint64_t seed, RotationSpace space, std::int64_t count);

// [W] signs of the residual stream times float(1 / sqrt(block)), as the engine applies them.
// `config` has a rotation.
std::vector<float> rotation_factors(const ModelConfig& config);

}  // namespace leq
