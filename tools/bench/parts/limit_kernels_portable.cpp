// Limit loops in plain C++ over 64 lanes, compiled for any processor of the architecture.
#include <cmath>

#include "tools/bench/parts/limit_kernels.h"

namespace leq::cpu {
namespace {

constexpr std::size_t kLanes = 64;

std::int32_t int8_products(std::int64_t rounds) noexcept {
  std::int16_t u[4 * kLanes];  // widened, because processors without byte products need this
  std::int16_t s[4 * kLanes];
  for (std::size_t i = 0; i < 4 * kLanes; ++i) {
    u[i] = static_cast<std::int16_t>(i * 7 % 256);
    s[i] = static_cast<std::int16_t>(i * 5 % 255) - 127;
  }
  std::int32_t all = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int32_t sum = 0;
    const std::size_t first = static_cast<std::size_t>(round % 4) * kLanes;
    for (std::size_t i = 0; i < kLanes; ++i) sum += u[first + i] * s[first + i];
    all ^= sum;
  }
  return all;
}

template <class Number>
Number float_products(std::int64_t rounds) noexcept {
  Number sums[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) sums[i] = static_cast<Number>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (Number& sum : sums) sum = std::fma(sum, Number{0.5}, Number{1});
  }
  Number all = 0;
  for (const Number sum : sums) all += sum;
  return all;
}

constexpr LimitKernels kKernels = {
    .read = kReads<16>,
    .int8 = {int8_products, 2.0 * kLanes, "portable int8 multiply-add"},
    .f32 = {float_products<float>, 2.0 * kLanes, "portable fma"},
    .f64 = {float_products<double>, 2.0 * kLanes, "portable fma"}};

}  // namespace

const LimitKernels& limit_kernels_portable() { return kKernels; }

}  // namespace leq::cpu
