// Row kernels over registers of floats, one body for all instruction sets. R wraps the registers of
// one set (x86/lanes_avx2.h and the like) and adds what depends on their number:
//   Words, most_of        lanes as unsigned numbers, and the largest of them
//   quantize              as RowKernels::quantize
// Each file has its own copy, in an unnamed namespace.
#pragma once

#include <cstdint>

#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/lanes.h"

namespace leq::cpu {
namespace {

inline float reciprocal_root(float total, float eps, std::int64_t n) {
  const float mean = total / static_cast<float>(n);
  return 1.0f / __builtin_sqrtf(mean + eps);
}

// A norm's sum over a row: step(sums, columns, mask of valid columns) in lanes k % 256, with k
// ascending from +0; then lanes 128, 64, ... 1 apart are added. If 256 lanes fill more registers
// than there are, each part of the lanes is summed in a separate pass over its columns.
template <class R, class Step>
inline float norm_sum(const float* x, std::int64_t n, Step step) {
  constexpr int kLanes = R::kLanes, kRegisters = 256 / kLanes, kPass = R::kManyRegisters ? 16 : 8;
  typename R::Floats lanes[kRegisters];
  for (int pass = 0; pass < kRegisters; pass += kPass) {
    typename R::Floats sums[kPass];
#pragma GCC unroll 16
    for (auto& sum : sums) sum = R::repeat(0.0f);
    std::int64_t k = pass * kLanes;
    for (; k + kPass * kLanes <= n; k += kRegisters * kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kPass; ++i) {
        sums[i] = step(sums[i], R::load(x + k + i * kLanes), R::first_lanes(kLanes));
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPass; ++i) {
      const std::int64_t left = n - k - i * kLanes;
      if (left <= 0) break;
      const auto mask = R::first_lanes(left);
      sums[i] = step(sums[i], R::load(x + k + i * kLanes, mask), mask);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kPass; ++i) lanes[pass + i] = sums[i];
  }
  // Passes without columns are left out, because their sums are +0.
#pragma GCC unroll 3
  for (int width = kRegisters / 2; width >= kPass; width /= 2) {
#pragma GCC unroll 4
    for (int pass = 0; pass < width; pass += kPass) {
      if ((pass + width) * kLanes >= n) break;
#pragma GCC unroll 16
      for (int i = pass; i < pass + kPass; ++i) lanes[i] = R::add(lanes[i], lanes[i + width]);
    }
  }
#pragma GCC unroll 4
  for (int width = kPass / 2; width >= R::kParts; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) lanes[i] = R::add(lanes[i], lanes[i + width]);
  }
  typename R::Floats last[R::kParts];
  for (int i = 0; i < R::kParts; ++i) last[i] = lanes[i];
  return R::total(last);
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
  const float squares = norm_sum<R>(x, n, [](auto sum, auto v, auto) { return R::fma(v, v, sum); });
  const float r = reciprocal_root(squares, eps, n);
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    lanes.store(out + k, lanes.load(x + k) * r * lanes.load(gain + k));
  });
}

template <class R>
void layer_norm(const float* x, const float* gain, const float* beta, float eps, std::int64_t n,
                float* out) noexcept {
  const float total = norm_sum<R>(x, n, [](auto sum, auto v, auto) { return sum + v; });
  const float mean = total / static_cast<float>(n);
  const float squares = norm_sum<R>(x, n, [mean](auto sum, auto v, auto mask) {
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

template <class R>
void gated_clamped(const float* gate, const float* up, std::int64_t n, float* out) noexcept {
  const typename R::Floats high = R::repeat(kClampedSwigluLimit), low = -high;
  for_registers<R>(n, [=](std::int64_t k, auto lanes) {
    const typename R::Floats x = lanes.load(gate + k), y = lanes.load(up + k);
    const typename R::Floats g = x > high ? high : x, above = y < low ? low : y;
    const typename R::Floats u = above > high ? high : above;
    lanes.store(out + k, times_sigmoid<R>(g, g * kClampedSwigluScale) * (u + 1.0f));
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
constexpr RowKernels kRowKernels = {
    .add = add<R>,
    .multiply = multiply<R>,
    .rms_norm = rms_norm<R>,
    .layer_norm = layer_norm<R>,
    .gated = {gated<R, Silu<R>>, gated<R, GeluTanh<R>>, gated_clamped<R>},
    .activated = {activated<R, Silu<R>>, activated<R, GeluTanh<R>>},
    .gate = gate<R>,
    .absmax = absmax<R>,
    .quantize = R::quantize};

}  // namespace
}  // namespace leq::cpu
