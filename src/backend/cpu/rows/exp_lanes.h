// The engine's exp (base/float_math.h, docs/numerics.md) on registers, written once for all
// instruction sets. F wraps the operations that differ (x86/floats_avx2.h and others). Each file
// has its own copy, because it may be compiled for instructions that other processors lack.
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
