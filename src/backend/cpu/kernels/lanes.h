// What all instruction sets write once over their registers: the engine's exp (base/float_math.h,
// docs/numerics.md), and loops over rows. L wraps the registers of one set (x86/lanes_avx2.h and
// the like). Each file has its own copy, in an unnamed namespace, because it may be compiled for
// instructions that other processors lack.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_math.h"

namespace leq::cpu {
namespace {

struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

// leq_exp of the lanes, bit for bit, for x <= 88.
template <class L>
inline typename L::Floats exp_below(typename L::Floats x) {
  const typename L::Floats n = L::round(x * kLog2E);
  typename L::Floats r = L::fnma(n, L::repeat(kLn2High), x);
  r = L::fnma(n, L::repeat(kLn2Low), r);
  typename L::Floats p = L::repeat(kExp6);
  p = L::fma(p, r, L::repeat(kExp5));
  p = L::fma(p, r, L::repeat(kExp4));
  p = L::fma(p, r, L::repeat(kExp3));
  p = L::fma(p, r, L::repeat(kExp2));
  p = L::fma(p, r, L::repeat(1.0f));
  p = L::fma(p, r, L::repeat(1.0f));
  return L::zero_below(x, kExpLowest, L::times_power(p, n));
}

// leq_exp of the lanes, bit for bit.
template <class L>
inline typename L::Floats exp_of(typename L::Floats x) {
  return L::infinite_above(x, kExpHighest, exp_below<L>(x));
}

// x / (1 + exp(-gate))
template <class L>
inline typename L::Floats times_sigmoid(typename L::Floats x, typename L::Floats gate) {
  return x / (exp_of<L>(-gate) + 1.0f);
}

// Loads and stores of a whole register, or of only those lanes that a row has. (On AMD processors a
// masked store with all lanes set takes much longer than a plain store.)
template <class L>
struct WholeRegister {
  template <class Number>
  static auto load(const Number* from) {
    return L::load(from);
  }
  static void store(float* to, typename L::Floats x) { L::store(to, x); }
  template <class Number, class Numbers>
  static void store(Number* to, const Numbers& x) {
    __builtin_memcpy(to, &x, sizeof x);
  }
  static auto or_else(typename L::Floats x, typename L::Floats) { return x; }
};
template <class L>
struct PartRegister {
  std::int64_t count;
  typename L::Mask mask;
  auto load(const float* from) const { return L::load(from, mask); }
  void store(float* to, typename L::Floats x) const { L::store(to, x, mask); }
  template <class Number>
  auto load(const Number* from) const {
    Number copy[L::kLanes] = {};
    __builtin_memcpy(copy, from, static_cast<std::size_t>(count) * sizeof(Number));
    return L::load(copy);
  }
  template <class Number, class Numbers>
  void store(Number* to, const Numbers& x) const {
    __builtin_memcpy(to, &x, static_cast<std::size_t>(count) * sizeof(Number));
  }
  // x in the lanes that the row has, y in the others.
  auto or_else(typename L::Floats x, typename L::Floats y) const { return L::select(mask, x, y); }
};

// Calls step(first column, WholeRegister or PartRegister) for each register of n columns.
template <class L, class Step>
inline void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + L::kLanes <= n; k += L::kLanes) step(k, WholeRegister<L>{});
  if (k < n) step(k, PartRegister<L>{n - k, L::first_lanes(n - k)});
}

}  // namespace
}  // namespace leq::cpu
