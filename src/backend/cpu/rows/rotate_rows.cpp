#include "backend/cpu/rows/rotate_rows.h"

#include <array>

namespace leq::cpu {
namespace {

constexpr std::int64_t kLanes = 16;

// The mean: sums in lanes k % 16 with k ascending, then adds lanes 8, 4, 2 and 1 apart.
float row_mean(const float* x, std::int64_t n) {
  std::array<float, kLanes> lanes = {};
  for (std::int64_t k = 0; k < n; ++k) lanes[static_cast<std::size_t>(k % kLanes)] += x[k];
  for (std::size_t width = kLanes / 2; width >= 1; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0] / static_cast<float>(n);
}

// x = H x for the n x n sign matrix H in natural (Sylvester) order, in log2(n) steps of sums and
// differences with strides 1, 2, 4, ... H is symmetric, so that this is also its transpose.
void hadamard(float* x, std::int64_t n) {
  for (std::int64_t stride = 1; stride < n; stride *= 2) {
    for (std::int64_t first = 0; first < n; first += 2 * stride) {
      float* low = x + first;
      float* high = low + stride;
      for (std::int64_t i = 0; i < stride; ++i) {
        const float a = low[i], b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

void multiply(const float* factors, std::int64_t n, float* x) {
  for (std::int64_t k = 0; k < n; ++k) x[k] *= factors[k];
}

}  // namespace

void rotate_row(const RotationTable& rotation, Direction direction, float* row) noexcept {
  const auto* factors = reinterpret_cast<const float*>(rotation.memory.data());
  const std::int64_t n = rotation.width;
  if (direction == Direction::forward) {
    if (rotation.stream_norm == NormKind::layer) {
      const float mean = row_mean(row, n);
      for (std::int64_t k = 0; k < n; ++k) row[k] -= mean;
    }
    multiply(factors, n, row);
  }
  for (std::int64_t k = 0; k < n; k += rotation.block) hadamard(row + k, rotation.block);
  if (direction == Direction::inverse) multiply(factors, n, row);
}

}  // namespace leq::cpu
