#include "model/rotation.h"

#include <cmath>

#include "base/random.h"

namespace leq {

std::int64_t hadamard_block(std::int64_t size) { return size & -size; }

std::vector<float> rotation_signs(std::uint64_t seed, RotationSpace space, std::int64_t count) {
  std::vector<float> signs;
  signs.reserve(static_cast<std::size_t>(count));
  for (std::uint32_t quad = 0; std::ssize(signs) < count; ++quad) {
    for (const std::uint32_t word : philox(seed, {quad, static_cast<std::uint32_t>(space), 0, 0})) {
      if (std::ssize(signs) < count) signs.push_back(word >> 31 != 0 ? -1.0f : 1.0f);
    }
  }
  return signs;
}

std::vector<float> rotation_factors(const ModelConfig& config) {
  auto factors = rotation_signs(config.rotation.seed, RotationSpace::residual, config.width);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.rotation.block)));
  for (float& factor : factors) factor *= root;
  return factors;
}

}  // namespace leq
