// Normal numbers of a seed, for tests of kernels that only want some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace leq {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class Real = float>
std::vector<Real> random_values(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Real> values(at(count));
  for (Real& value : values) value = static_cast<Real>(random.normal());
  return values;
}

}  // namespace leq
