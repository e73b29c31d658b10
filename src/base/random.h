// Philox4x32-10 (Salmon et al. 2011), a counter-based generator: every number is a pure function of
// (key, counter), the same on every machine, thread count and device.
#pragma once

#include <array>
#include <cstdint>

namespace leq {

using PhiloxCounter = std::array<std::uint32_t, 4>;

inline PhiloxCounter philox(std::uint64_t key, PhiloxCounter counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * counter[0];
    const std::uint64_t p1 = 0xCD9E8D57ull * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// A stream of numbers from one key, for synthetic weights and tests.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  std::uint32_t bits() {
    if (used_ == 4) {
      block_ = philox(seed_, {static_cast<std::uint32_t>(index_),
                              static_cast<std::uint32_t>(index_ >> 32), 0, 0});
      ++index_;
      used_ = 0;
    }
    return block_[used_++];
  }
  // Uniform in [0, 1), in steps of 2^-24.
  float uniform() { return static_cast<float>(bits() >> 8) * 0x1p-24f; }
  // Uniform in [0, bound), where bound > 0.
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(bits()) * bound) >> 32);
  }
  // Mean 0, variance 1, as the sum of four uniforms: bounded, and exact on every machine.
  float normal() {
    const float sum = (uniform() + uniform()) + (uniform() + uniform());
    return (sum - 2.0f) * 1.7320508f;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
  PhiloxCounter block_ = {};
  unsigned used_ = 4;
};

}  // namespace leq
