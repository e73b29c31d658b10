// Pseudo-random numbers in device memory, which are the same on every machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/gpu/data.h"

namespace leq::LEQ_GPU::bench {

// The bytes of the repeated block, which are not divisible by sizes of tiles, warps or groups.
inline constexpr std::size_t kRepeated = (std::size_t{1} << 22) + 4 * 1237;

// Returns make(random in 0 ... 2^24 - 1) in device memory, repeated after kRepeated bytes.
template <class T>
Memory numbers(std::size_t count, rt::Stream& stream, const std::function<T(std::uint32_t)>& make) {
  std::uint32_t state = 12345 + static_cast<std::uint32_t>(count);
  std::vector<T> block(std::min(count, kRepeated / sizeof(T)));
  for (T& value : block) {
    state = state * 1664525u + 1013904223u;
    value = make(state >> 8);
  }
  return Memory::repeated(std::as_bytes(std::span<const T>(block)), count * sizeof(T), stream);
}

inline float between(std::uint32_t random, float low, float high) {
  return low + (high - low) * static_cast<float>(random) * 0x1p-24f;
}

}  // namespace leq::LEQ_GPU::bench
