// The loop that limits of products are: independent chains of one operation in registers. For files
// of limits: each has its own copy, in an unnamed namespace.
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

// `rounds` times step(sum) of each chain. Returns lane 0, all chains added.
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

// x = x / 2 + 1 in each of the chains, by multiply_add(x, 0.5, 1) on whole registers. Chains begin
// apart: equal ones would be computed once.
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
