// The engine's exp (base/float_math.h, docs/numerics.md) on registers, one body for all instruction
// sets: F wraps what is not written alike (x86/floats_avx2.h and its like). Everything has a copy
// in each file, which may be built for instructions that others lack.
#pragma once

#include "base/float_math.h"

namespace leq::cpu {
namespace {

// leq_exp of the lanes, bit for bit, for x <= 88.
template <class F>
inline typename F::Floats exp_below(typename F::Floats x) {
  const typename F::Floats n = F::round(x * kLog2E);
  typename F::Floats r = F::fnma(n, F::repeat(kLn2High), x);
  r = F::fnma(n, F::repeat(kLn2Low), r);
  typename F::Floats p = F::repeat(kExp6);
  p = F::fma(p, r, F::repeat(kExp5));
  p = F::fma(p, r, F::repeat(kExp4));
  p = F::fma(p, r, F::repeat(kExp3));
  p = F::fma(p, r, F::repeat(kExp2));
  p = F::fma(p, r, F::repeat(1.0f));
  p = F::fma(p, r, F::repeat(1.0f));
  return F::zero_below(x, kExpLowest, F::times_power(p, n));
}

// leq_exp of the lanes, bit for bit.
template <class F>
inline typename F::Floats exp_of(typename F::Floats x) {
  return F::infinite_above(x, kExpHighest, exp_below<F>(x));
}

// x / (1 + exp(-gate))
template <class F>
inline typename F::Floats times_sigmoid(typename F::Floats x, typename F::Floats gate) {
  return x / (exp_of<F>(-gate) + 1.0f);
}

}  // namespace
}  // namespace leq::cpu
