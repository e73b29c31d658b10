// Limit loops in plain C++ over 64 lanes, compiled for any processor of the
// architecture.
#include <cmath>

#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {
constexpr std::size_t kReadVector = 16;
#include "eval/limits/limit_read.inc"

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

float f32_products(std::int64_t rounds) noexcept {
  float sums[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) sums[i] = static_cast<float>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum = std::fma(sum, 0.5f, 1.0f);
  }
  float all = 0;
  for (const float sum : sums) all += sum;
  return all;
}

double f64_products(std::int64_t rounds) noexcept {
  double sums[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) sums[i] = static_cast<double>(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (double& sum : sums) sum = std::fma(sum, 0.5, 1.0);
  }
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

constexpr LimitKernels kKernels = {.read = kRead,
                                   .int8 = int8_products,
                                   .f32 = f32_products,
                                   .f64 = f64_products,
                                   .int8_operations = 2.0 * kLanes,
                                   .f32_operations = 2.0 * kLanes,
                                   .f64_operations = 2.0 * kLanes,
                                   .int8_name = "portable int8 multiply-add",
                                   .f32_name = "portable fma"};

}  // namespace

const LimitKernels& limit_kernels_portable() { return kKernels; }

}  // namespace leq::cpu
