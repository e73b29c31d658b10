// The loop of multiply-adds that every level's limit of f32 and f64 has. For files of limits: each
// has its own copy, in an unnamed namespace.
#pragma once

#include <cstdint>
#include <type_traits>

namespace leq::cpu {
namespace {

// x = x / 2 + 1 in each of the chains, by multiply_add(x, 0.5, 1) on whole registers. Returns one
// lane, all chains added.
template <class Register, int kChains, class MultiplyAdd>
auto multiply_adds(std::int64_t rounds, MultiplyAdd multiply_add) noexcept {
  using Number = std::decay_t<decltype(Register{}[0])>;
  const Register half = Register{} + Number{0.5};
  const Register one = Register{} + Number{1};
  Register sums[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = Register{} + static_cast<Number>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) sum = multiply_add(sum, half, one);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = sums[0] + sums[i];
  return Number{sums[0][0]};
}

}  // namespace
}  // namespace leq::cpu
