// Row kernels over registers of floats, one body for all instruction sets. R wraps the registers of
// one set (x86/floats_avx2.h and the like) and adds what depends on their number:
//   norm_sum(x, n, step)  calls step(sums, columns, mask of valid columns) over a row in lanes
//                         k % 256, then adds lanes 128, 64, ... 1 apart
//   Words, most_of        lanes as unsigned numbers, and the largest of them
//   quantize              as RowKernels::quantize
// Each file has its own copy, in an unnamed namespace.
#pragma once

#include <cstdint>

#include "backend/cpu/rows/exp_lanes.h"
#include "backend/cpu/rows/row_kernel_tables.h"

namespace leq::cpu {
namespace {

// Loads and stores of a whole register, or of only those lanes that a row has. (On AMD processors a
// masked store with all lanes set takes much longer than a plain store.)
template <class R>
struct WholeRegister {
  static auto load(const float* from) { return R::load(from); }
  static void store(float* to, typename R::Floats x) { R::store(to, x); }
};
template <class R>
struct PartRegister {
  typename R::Mask mask;
  auto load(const float* from) const { return R::load(from, mask); }
  void store(float* to, typename R::Floats x) const { R::store(to, x, mask); }
};

// Calls step(first column, WholeRegister or PartRegister) for each register of n columns.
template <class R, class Step>
inline void for_registers(std::int64_t n, Step step) {
  std::int64_t k = 0;
  for (; k + R::kLanes <= n; k += R::kLanes) step(k, WholeRegister<R>{});
  if (k < n) step(k, PartRegister<R>{R::first_lanes(n - k)});
}

inline float reciprocal_root(float total, float eps, std::int64_t n) {
  const float mean = total / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

template <class R>
void add(const float* y, std::int64_t n, float* x) noexcept {
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(x + k, lanes.load(x + k) + lanes.load(y + k));
  });
}

template <class R>
void multiply(const float* y, std::int64_t n, float* x) noexcept {
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(x + k, lanes.load(x + k) * lanes.load(y + k));
  });
}

template <class R>
void rms_norm(const float* x, const float* gain, float eps, std::int64_t n, float* out) noexcept {
  const float squares = R::norm_sum(x, n, [](auto sum, auto v, auto) { return R::fma(v, v, sum); });
  const float r = reciprocal_root(squares, eps, n);
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, lanes.load(x + k) * r * lanes.load(gain + k));
  });
}

template <class R>
void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total = R::norm_sum(x, n, [](auto sum, auto v, auto) { return sum + v; });
  const float mean = total / static_cast<float>(n);
  const float squares = R::norm_sum(x, n, [mean](auto sum, auto v, auto mask) {
    const typename R::Floats difference = R::keep(v - mean, mask);
    return R::fma(difference, difference, sum);
  });
  const float r = reciprocal_root(squares, eps, n);
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    const typename R::Floats scaled = (lanes.load(x + k) - mean) * r * lanes.load(gain + k);
    lanes.store(out + k, scaled + lanes.load(beta + k));
  });
}

template <class R>
struct Silu {
  static auto of(typename R::Floats x) { return R::silu(x); }
};
// x / (1 + exp(-2u)), u = scale * fma(cubic * (x * x), x, x)
template <class R>
struct GeluTanh {
  static auto of(typename R::Floats x) {
    const typename R::Floats u = R::fma(x * x * kGeluCubic, x, x) * kGeluScale;
    return times_sigmoid<R>(x, u * 2.0f);
  }
};

template <class R, class F>
void gated(const float* gate, const float* up, std::int64_t n, float* out) noexcept {
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, F::of(lanes.load(gate + k)) * lanes.load(up + k));
  });
}

template <class R, class F>
void activated(const float* x, std::int64_t n, float* out) noexcept {
  for_registers<R>(
      n, [=](std::int64_t k, auto lanes) { lanes.store(out + k, F::of(lanes.load(x + k))); });
}

template <class R>
void gate(const float* gate, std::int64_t n, float* x) noexcept {
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(x + k, times_sigmoid<R>(lanes.load(x + k), lanes.load(gate + k)));
  });
}

// Magnitudes compare like their bits as integers; infinity and NaN are above all numbers.
template <class R>
float absmax(const float* x, std::int64_t n) noexcept {
  typename R::Words largest = {};
  for_registers<R>(n, [&](std::int64_t k, auto lanes) {
    const auto bits = __builtin_bit_cast(typename R::Words, lanes.load(x + k)) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  });
  return __builtin_bit_cast(float, R::most_of(largest));
}

template <class R>
constexpr RowKernels kRowKernels = {.add = add<R>,
                                    .multiply = multiply<R>,
                                    .rms_norm = rms_norm<R>,
                                    .layer_norm = layer_norm<R>,
                                    .gated = {gated<R, Silu<R>>, gated<R, GeluTanh<R>>},
                                    .activated = {activated<R, Silu<R>>, activated<R, GeluTanh<R>>},
                                    .gate = gate<R>,
                                    .absmax = absmax<R>,
                                    .quantize = R::quantize};

}  // namespace
}  // namespace leq::cpu
