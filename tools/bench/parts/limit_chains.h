// The loop of all compute limits: independent dependency chains of one operation in registers.
// Include only in files that define limits, as each gets its own copy in an unnamed namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace leq::cpu {
namespace {

template <class Number, std::size_t kBytes>
struct RegisterOf {
  typedef Number Type __attribute__((vector_size(kBytes)));
};
template <class Number, std::size_t kBytes>
using Register = typename RegisterOf<Number, kBytes>::Type;

// Calls step(sum) `rounds` times on each chain. Returns lane 0 of the sum of all chains.
template <class Number, std::size_t kBytes, int kChains, class Step>
Number chains(std::int64_t rounds, Step step) noexcept {
  using Sums = Register<Number, kBytes>;
  Sums sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = Sums{};
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (auto& sum : sums) step(sum);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = sums[0] + sums[i];
  return sums[0][0];
}

// Computes x = x / 2 + 1 in each chain, as multiply_add(x, 0.5, 1) on whole registers. Chains start
// at different values, because the compiler would compute equal chains only once.
template <class Sums, int kChains, class MultiplyAdd>
auto multiply_adds(std::int64_t rounds, MultiplyAdd multiply_add) noexcept {
  using Number = std::decay_t<decltype(Sums{}[0])>;
  const Sums half = Sums{} + Number{0.5};
  const Sums one = Sums{} + Number{1};
  Sums sums[kChains];
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) sums[i] = Sums{} + static_cast<Number>(i);
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
