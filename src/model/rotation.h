// The signs of random Hadamard rotations. They are a pure function of a seed, so that rotating a
// model and running it use the same signs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace leq {

// The rotated quantity; each has its own signs.
enum class RotationSpace : std::uint32_t {
  residual,     // the residual stream between the layers, [W]
  head_values,  // the values of a head, [d], with the same signs for all heads
};

// The largest power of two that divides `size` > 0: the size of the Hadamard blocks.
std::int64_t hadamard_block(std::int64_t size);

// [count] of +1 and -1: sign i is the top bit of word i % 4 of philox(seed, {i / 4, space, 0, 0}).
std::vector<float> rotation_signs(std::uint64_t seed, RotationSpace space, std::int64_t count);

// [W] signs of the residual stream times float(1 / sqrt(block)): the factors that the engine
// applies. `config` must have a rotation.
std::vector<float> rotation_factors(const ModelConfig& config);

}  // namespace leq
