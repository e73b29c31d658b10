#include "tensor/round_weight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000u;
constexpr std::int64_t kChunk = 32;  // smallest group; a constant lets the compiler vectorize loops

std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) << 1 >> 1; }

// The bit pattern of max |x|, which has the same order as the numbers. It is at least kInfinityBits
// if a value is not finite.
std::uint32_t absmax_bits(const float* x, std::int64_t count) {
  std::array<std::uint32_t, kChunk> lanes = {};
  std::int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    for (std::int64_t lane = 0; lane < kChunk; ++lane) {
      const std::uint32_t bits = magnitude_bits(x[i + lane]);
      lanes[static_cast<std::size_t>(lane)] = std::max(lanes[static_cast<std::size_t>(lane)], bits);
    }
  }
  std::uint32_t largest = *std::max_element(lanes.begin(), lanes.end());
  for (; i < count; ++i) largest = std::max(largest, magnitude_bits(x[i]));
  return largest;
}

// The value of the first x of largest |x| among `count` finite values, with its sign.
float peak(const float* x, std::int64_t count) {
  const std::uint32_t largest = absmax_bits(x, count);
  const float* found = std::find_if(
      x, x + count, [largest](float value) { return magnitude_bits(value) == largest; });
  return *found;
}

float scale_of_peak(const QuantScheme& scheme, float value) {
  if (scheme.bits == 8) return std::fabs(value) / 127.0f;
  return value / -static_cast<float>(1 << (scheme.bits - 1));
}

// Smallest and largest number among `count` values and 0.
struct Range {
  float low = 0;
  float high = 0;
};
Range range_of(const float* x, std::int64_t count) {
  std::array<float, kChunk> low = {};
  std::array<float, kChunk> high = {};
  for (std::int64_t i = 0; i < count; i += kChunk) {
    const std::int64_t lanes = std::min(kChunk, count - i);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const auto at = static_cast<std::size_t>(lane);
      low[at] = x[i + lane] < low[at] ? x[i + lane] : low[at];
      high[at] = x[i + lane] > high[at] ? x[i + lane] : high[at];
    }
  }
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

float top_code(const QuantScheme& scheme) { return static_cast<float>((1 << scheme.bits) - 1); }

// int: scale by the value of largest magnitude. `sizes` receives this magnitude for each group.
void scales_by_peak(const NamedMatrix& matrix, const QuantScheme& scheme, RoundedScales& scales,
                    std::vector<float>& sizes) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t first = 0; first < matrix.columns; first += scales.group) {
      const float v = peak(matrix.at(row, first), std::min(scales.group, matrix.columns - first));
      sizes.push_back(std::fabs(v));
      scales.values.push_back(scale_of_peak(scheme, v));
    }
  }
  if (scheme.scaling != Scaling::tensor) return;
  const float largest = *std::max_element(sizes.begin(), sizes.end());
  std::fill(sizes.begin(), sizes.end(), largest);
  std::fill(scales.values.begin(), scales.values.end(), scale_of_peak(scheme, largest));
}

// uint: scale by the range, which includes 0. `sizes` receives the ranges, `lows` their minima.
void scales_by_range(const NamedMatrix& matrix, const QuantScheme& scheme, RoundedScales& scales,
                     std::vector<float>& sizes, std::vector<float>& lows) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t first = 0; first < matrix.columns; first += scales.group) {
      const Range range =
          range_of(matrix.at(row, first), std::min(scales.group, matrix.columns - first));
      const float size = range.high - range.low;
      require(std::isfinite(size), matrix.name, ": values from ", range.low, " to ", range.high,
              " in row ", row, " are too far apart for ", scheme_name(scheme),
              "; store it as an int or float type");
      sizes.push_back(size);
      lows.push_back(range.low);
      scales.values.push_back(size / top_code(scheme));
    }
  }
}

// code = clip(round_half_even(x / s) + zero). Adding 1.5 * 2^23 rounds to nearest even and leaves
// the integer in the low bits. Clipping before rounding is equivalent, because the limits are
// integers.
void round_chunk(const float* x, float scale, float low, float high, int offset,
                 std::uint8_t* codes) {
  constexpr float kRounder = 12582912.0f;
  for (std::int64_t i = 0; i < kChunk; ++i) {
    float y = x[i] / scale;
    y = y < low ? low : y;
    y = y > high ? high : y;
    codes[i] = static_cast<std::uint8_t>(std::bit_cast<std::int32_t>(y + kRounder) -
                                         std::bit_cast<std::int32_t>(kRounder) + offset);
  }
}

}  // namespace

void fail_at(const NamedMatrix& matrix, std::int64_t index, std::string_view problem) {
  fail(matrix.name, ": value ", matrix.values[static_cast<std::size_t>(index)], " at row ",
       index / matrix.columns, ", column ", index % matrix.columns, " ", problem);
}

void require_finite(const NamedMatrix& matrix, std::int64_t first, std::int64_t count) {
  if (absmax_bits(matrix.values.data() + first, count) < kInfinityBits) return;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (!std::isfinite(matrix.values[static_cast<std::size_t>(i)])) {
      fail_at(matrix, i, "is not finite; the checkpoint is damaged");
    }
  }
}

RoundedScales choose_scales(const NamedMatrix& matrix, const QuantScheme& scheme) {
  require_finite(matrix, 0, matrix.rows * matrix.columns);
  RoundedScales scales;
  scales.group = scheme.scaling == Scaling::group ? scheme.group : matrix.columns;
  scales.per_row = (matrix.columns + scales.group - 1) / scales.group;
  const bool by_range = scheme.kind == CodeKind::uint_;
  std::vector<float> sizes;
  std::vector<float> lows;
  if (by_range) {
    scales_by_range(matrix, scheme, scales, sizes, lows);
  } else {
    scales_by_peak(matrix, scheme, scales, sizes);
  }
  if (scheme.scaling == Scaling::group) {
    scales.scale_mul = round_group_scales(scales.values, sizes);
  }
  scales.divisors = scales.values;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < kSmallestAbsmax) {
      scales.values[i] = scales.scale_mul;
      scales.divisors[i] = std::numeric_limits<float>::infinity();
    }
    if (!by_range) continue;
    const float zero = std::nearbyint(-lows[i] / scales.divisors[i]);
    scales.zeros.push_back(static_cast<std::uint8_t>(std::min(zero, top_code(scheme))));
  }
  return scales;
}

void round_block(const NamedMatrix& matrix, const RoundedScales& scales, const QuantScheme& scheme,
                 std::int64_t row, std::int64_t first, CodeBlock& codes) {
  std::array<float, kBlockColumns> x = {};  // values and codes after the last column are 0
  const std::int64_t count = std::min(kBlockColumns, matrix.columns - first);
  std::memcpy(x.data(), matrix.at(row, first), static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t i = 0; i < kBlockColumns; i += kChunk) {
    const bool grouped = scheme.scaling == Scaling::group;
    const std::int64_t group = grouped ? (first + i) / scales.group : 0;
    const auto at =
        static_cast<std::size_t>(row * scales.per_row + std::min(group, scales.per_row - 1));
    int zero = scheme.bias();
    float high = scheme.bits == 8 ? 127.0f : static_cast<float>((1 << (scheme.bits - 1)) - 1);
    float low = scheme.bits == 8 ? -127.0f : -high - 1.0f;
    if (scheme.kind == CodeKind::uint_) {
      // A group that consists of padding has zero point 0.
      zero = group < scales.per_row ? scales.zeros[at] : 0;
      low = -static_cast<float>(zero);
      high = top_code(scheme) + low;
    }
    round_chunk(x.data() + i, scales.divisors[at], low, high, zero, codes.data() + i);
  }
}

}  // namespace leq
