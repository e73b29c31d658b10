#include "tensor/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/plane_writer.h"

namespace leq {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000u;
constexpr std::int64_t kChunk = 32;  // the smallest group; a constant count lets loops vectorise

struct Matrix {
  std::span<const float> values;  // [rows][columns]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::string_view name;

  const float* at(std::int64_t row, std::int64_t column) const {
    return values.data() + row * columns + column;
  }
};

std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) << 1 >> 1; }

// The bit pattern of max |x|, which orders like the numbers; at least kInfinityBits where a value
// is not finite.
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

[[noreturn]] void fail_at(const Matrix& matrix, std::int64_t index, std::string_view problem) {
  fail(matrix.name, ": value ", matrix.values[static_cast<std::size_t>(index)], " at row ",
       index / matrix.columns, ", column ", index % matrix.columns, " ", problem);
}

void require_finite(const Matrix& matrix, std::int64_t first, std::int64_t count) {
  if (absmax_bits(matrix.values.data() + first, count) < kInfinityBits) return;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (!std::isfinite(matrix.values[static_cast<std::size_t>(i)])) {
      fail_at(matrix, i, "is not finite; the checkpoint is damaged");
    }
  }
}

// The first x of largest |x| among `count` finite values.
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

// The scales of a tensor as the file holds them, and the numbers that its values are divided by:
// the same, but infinity (so that every code is 0) where a group has no scale.
struct Scales {
  std::int64_t group = 0;       // columns that share a scale
  std::int64_t per_row = 0;     // G
  std::vector<float> values;    // [rows][G]
  std::vector<float> divisors;  // [rows][G]
  float scale_mul = 1.0f;
};

Scales choose_scales(const Matrix& matrix, const QuantScheme& scheme) {
  Scales scales;
  scales.group = scheme.scaling == Scaling::group ? scheme.group : matrix.columns;
  scales.per_row = (matrix.columns + scales.group - 1) / scales.group;
  std::vector<float> absmax;
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    require_finite(matrix, row * matrix.columns, matrix.columns);
    for (std::int64_t first = 0; first < matrix.columns; first += scales.group) {
      const float v = peak(matrix.at(row, first), std::min(scales.group, matrix.columns - first));
      absmax.push_back(std::fabs(v));
      scales.values.push_back(scale_of_peak(scheme, v));
    }
  }
  if (scheme.scaling == Scaling::tensor) {
    const float largest = *std::max_element(absmax.begin(), absmax.end());
    std::fill(absmax.begin(), absmax.end(), largest);
    std::fill(scales.values.begin(), scales.values.end(), scale_of_peak(scheme, largest));
  }
  if (scheme.scaling == Scaling::group) {
    scales.scale_mul = round_group_scales(scales.values, absmax);
  }
  scales.divisors = scales.values;
  for (std::size_t i = 0; i < absmax.size(); ++i) {
    if (absmax[i] >= kSmallestAbsmax) continue;
    scales.values[i] = scales.scale_mul;
    scales.divisors[i] = std::numeric_limits<float>::infinity();
  }
  return scales;
}

// code = clip(round_half_even(x / s)). Adding 1.5 * 2^23 rounds to nearest even at the ones place
// and leaves the integer in the low bits; clipping first gives the same, the limits are integers.
void quantize_chunk(const float* x, float scale, const QuantScheme& scheme, std::int8_t* codes) {
  constexpr float kRounder = 12582912.0f;
  const float high = static_cast<float>((1 << (scheme.bits - 1)) - 1);
  const float low = scheme.bits == 8 ? -127.0f : -high - 1.0f;
  for (std::int64_t i = 0; i < kChunk; ++i) {
    float y = x[i] / scale;
    y = y < low ? low : y;
    y = y > high ? high : y;
    codes[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(y + kRounder) -
                                        std::bit_cast<std::int32_t>(kRounder));
  }
}

void quantize_block(const Matrix& matrix, const Scales& scales, const QuantScheme& scheme,
                    std::int64_t row, std::int64_t first, CodeBlock& codes) {
  std::array<float, kBlockColumns> x = {};  // columns behind the last are 0, and so their codes
  const std::int64_t count = std::min(kBlockColumns, matrix.columns - first);
  std::memcpy(x.data(), matrix.at(row, first), static_cast<std::size_t>(count) * sizeof(float));
  for (std::int64_t i = 0; i < kBlockColumns; i += kChunk) {
    const std::int64_t group = std::min((first + i) / scales.group, scales.per_row - 1);
    const float divisor = scales.divisors[static_cast<std::size_t>(row * scales.per_row + group)];
    quantize_chunk(x.data() + i, divisor, scheme, codes.data() + i);
  }
}

PackedWeight pack_floats(const Matrix& matrix, PackedWeight packed) {
  require_finite(matrix, 0, matrix.rows * matrix.columns);
  const std::size_t count = matrix.values.size();
  if (packed.scheme.kind == CodeKind::f32) {
    std::memcpy(packed.codes.data(), matrix.values.data(), count * sizeof(float));
    return packed;
  }
  const bool is_f16 = packed.scheme.kind == CodeKind::f16;
  const std::uint32_t infinity = is_f16 ? 0x7c00u : 0x7f80u;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = matrix.values[i];
    const std::uint16_t half = is_f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if ((half & 0x7fffu) == infinity || (is_f16 && std::fabs(value) > 65504.0f)) [[unlikely]] {
      fail_at(matrix, static_cast<std::int64_t>(i),
              is_f16 ? "is beyond the largest f16, 65504; store it as bf16 or f32"
                     : "is beyond the largest bf16; store it as f32");
    }
    std::memcpy(packed.codes.data() + i * sizeof half, &half, sizeof half);
  }
  return packed;
}

}  // namespace

WeightView PackedWeight::view() const {
  WeightView weight;
  weight.scheme = scheme;
  weight.act = act;
  weight.rows = rows;
  weight.columns = columns;
  weight.codes = codes.data();
  weight.scales = scales.empty() ? nullptr : scales.data();
  weight.scale_mul = scale_mul;
  weight.zeros = zeros.empty() ? nullptr : reinterpret_cast<const std::uint8_t*>(zeros.data());
  weight.sums = sums.empty() ? nullptr : sums.data();
  return weight;
}

float round_group_scales(std::span<float> scales, std::span<const float> group_absmax) {
  float largest = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (group_absmax[i] >= kSmallestAbsmax) largest = std::max(largest, std::fabs(scales[i]));
  }
  float scale_mul = 1.0f;
  if (largest > 0) {
    int exponent = 0;
    std::frexp(largest, &exponent);
    scale_mul = std::ldexp(1.0f, exponent - 15);
  }
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const float rounded = f16_to_f32(f32_to_f16(scales[i] / scale_mul));
    const bool usable = group_absmax[i] >= kSmallestAbsmax && rounded != 0;
    scales[i] = (usable ? rounded : 1.0f) * scale_mul;
  }
  return scale_mul;
}

PackedWeight pack_weight(std::span<const float> values, std::int64_t rows, std::int64_t columns,
                         const QuantScheme& scheme, ActKind act, std::string_view name) {
  const Matrix matrix{values, rows, columns, name};
  require(rows > 0 && columns > 0 && static_cast<std::int64_t>(values.size()) / columns == rows &&
              static_cast<std::int64_t>(values.size()) % columns == 0,
          name, ": expected ", rows, " x ", columns, " values, found ", values.size());
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  if (scheme.is_float()) return pack_floats(matrix, std::move(packed));
  const Scales scales = choose_scales(matrix, scheme);
  packed.scale_mul = scales.scale_mul;
  PlaneWriter writer(packed);
  writer.put_scales(scales.values, scales.per_row);
  CodeBlock codes;
  for (std::int64_t panel = 0; panel < rows; panel += kPanelRows) {
    const std::int64_t end = std::min(panel + kPanelRows, rows);
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      for (std::int64_t row = panel; row < end; ++row) {
        quantize_block(matrix, scales, scheme, row, first, codes);
        writer.put_codes(row, first, codes);
      }
    }
  }
  return packed;
}

PackedWeight pack_codes(std::span<const std::int8_t> codes, std::span<const float> scales,
                        float scale_mul, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act) {
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : columns;
  const std::int64_t per_row = (columns + group - 1) / group;
  require(static_cast<std::int64_t>(codes.size()) == rows * columns, "pack: expected ",
          rows * columns, " codes, found ", codes.size());
  require(static_cast<std::int64_t>(scales.size()) == rows * per_row, "pack: expected ",
          rows * per_row, " scales, found ", scales.size());
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  packed.scale_mul = scale_mul;
  PlaneWriter writer(packed);
  writer.put_scales(scales, per_row);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      CodeBlock block = {};
      const auto count = static_cast<std::size_t>(std::min(kBlockColumns, columns - first));
      std::memcpy(block.data(), codes.data() + row * columns + first, count);
      writer.put_codes(row, first, block);
    }
  }
  return packed;
}

}  // namespace leq
