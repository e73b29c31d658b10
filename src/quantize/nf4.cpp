// Method nf4: the nearest of sixteen levels, for blocks of 64 weights with one scale.
#include "quantize/nf4.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quantize/fit.h"
#include "quantize/method_table.h"
#include "tensor/pack.h"

namespace leq {
namespace {

constexpr std::size_t kScalesOfOneMean = 256;
constexpr int kZeroLevel = 7;

std::int16_t nearest_level(float y) {
  const auto& levels = nf4_levels();
  std::size_t best = 0;
  for (std::size_t i = 1; i < levels.size(); ++i) {
    if (std::fabs(y - levels[i]) < std::fabs(y - levels[best])) best = i;
  }
  return static_cast<std::int16_t>(best);
}

bool supports_nf4(const QuantScheme& scheme) { return scheme.kind == CodeKind::nf4; }

// max |x| of each block, [N][G].
std::vector<float> absmax_of_blocks(const MethodInput& input, std::int64_t per_row) {
  std::vector<float> absmax(static_cast<std::size_t>(input.rows * per_row));
  for_rows(input.pool, input.rows, [&](std::int64_t row) {
    for (std::int64_t k = 0; k < input.columns; ++k) {
      float& largest = absmax[static_cast<std::size_t>(row * per_row + k / input.scheme.group)];
      const float x = input.weight[static_cast<std::size_t>(row * input.columns + k)];
      largest = std::max(largest, std::fabs(x));
    }
  });
  return absmax;
}

MethodResult choose_nf4(const MethodInput& input) {
  require_finite(input);
  const std::int64_t group = input.scheme.group;
  const std::int64_t per_row = (input.columns + group - 1) / group;
  const std::vector<float> absmax = absmax_of_blocks(input, per_row);
  MethodResult result;
  ChosenCodes& chosen = result.codes;
  chosen.scales = absmax;
  double_quantize(chosen.scales);
  chosen.scale_mul = round_group_scales(chosen.scales, absmax);
  chosen.codes.resize(input.weight.size());
  for_rows(input.pool, input.rows, [&](std::int64_t row) {
    for (std::int64_t k = 0; k < input.columns; ++k) {
      const auto i = static_cast<std::size_t>(row * input.columns + k);
      const auto at = static_cast<std::size_t>(row * per_row + k / group);
      chosen.codes[i] = absmax[at] < kSmallestAbsmax
                            ? static_cast<std::int16_t>(kZeroLevel)
                            : nearest_level(input.weight[i] / chosen.scales[at]);
    }
  });
  return result;
}

}  // namespace

const std::array<float, 16>& nf4_levels() {
  static constexpr std::array<float, 16> kLevels = {
      -1.0f,        -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f,
      -0.09105004f, 0.0f,         0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
      0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
  return kLevels;
}

void double_quantize(std::span<float> absmax) {
  for (std::size_t first = 0; first < absmax.size(); first += kScalesOfOneMean) {
    const auto part = absmax.subspan(first, std::min(kScalesOfOneMean, absmax.size() - first));
    const double sum = std::accumulate(part.begin(), part.end(), 0.0);
    const auto mean = static_cast<float>(sum / static_cast<double>(part.size()));
    float widest = 0;
    for (const float a : part) widest = std::max(widest, std::fabs(a - mean));
    if (widest == 0) continue;
    const float step = widest / 127.0f;
    for (float& a : part) {
      const float rounded = mean + step * std::nearbyintf((a - mean) / step);
      if (std::fabs(rounded - a) <= a / 8) a = rounded;
    }
  }
}

QuantMethod nf4_method() {
  return {"nf4", "the nearest of 16 levels of a normal distribution, blocks of 64 (type nf4)",
          Needs::nothing, supports_nf4, choose_nf4};
}

}  // namespace leq
