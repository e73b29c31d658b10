// The norms of docs/numerics.md one operation at a time, each rounded to f32: a reference for the
// bits of every backend.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace leq::test {

// Lanes k % 256 are added in pairs at distances 128, then 64, ... then 1.
inline float sum_of_norm_lanes(std::vector<float> lanes) {
  while (lanes.size() > 1) {
    std::vector<float> next(lanes.size() / 2);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = lanes[i] + lanes[i + next.size()];
    lanes = std::move(next);
  }
  return lanes.front();
}

inline float naive_mean_of_squares(std::span<const float> x, float centre) {
  std::vector<float> lanes(256);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const float difference = x[k] - centre;
    lanes[k % 256] = std::fma(difference, difference, lanes[k % 256]);
  }
  return sum_of_norm_lanes(lanes) / static_cast<float>(x.size());
}

inline std::vector<float> naive_rms_norm(std::span<const float> x, std::span<const float> gain,
                                         float eps) {
  const float r = 1.0f / std::sqrt(naive_mean_of_squares(x, 0.0f) + eps);
  std::vector<float> y;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const float scaled = x[k] * r;
    y.push_back(scaled * gain[k]);
  }
  return y;
}

inline std::vector<float> naive_layer_norm(std::span<const float> x, std::span<const float> gain,
                                           std::span<const float> beta, float eps) {
  std::vector<float> lanes(256);
  for (std::size_t k = 0; k < x.size(); ++k) lanes[k % 256] += x[k];
  const float mean = sum_of_norm_lanes(lanes) / static_cast<float>(x.size());
  const float r = 1.0f / std::sqrt(naive_mean_of_squares(x, mean) + eps);
  std::vector<float> y;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const float scaled = (x[k] - mean) * r;
    const float gained = scaled * gain[k];
    y.push_back(gained + beta[k]);
  }
  return y;
}

}  // namespace leq::test
