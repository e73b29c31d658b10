// Scales, zero points and codes of the integer schemes by rounding to nearest, for one tensor at a
// time, with the arithmetic of docs/leq-format.md ("how codes are chosen").
#include "tensor/pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

struct NamedMatrix {
  std::span<const float> values;  // [rows][columns]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::string_view name;

  const float* at(std::int64_t row, std::int64_t column) const {
    return values.data() + row * columns + column;
  }
};

// The scales of a tensor as the file stores them, and the divisors of its values: the scales or,
// for a group without scale, infinity, so that every code of the group has value 0.
struct RoundedScales {
  std::int64_t group = 0;           // columns that share a scale
  std::int64_t per_row = 0;         // G, groups per row
  std::vector<float> values;        // [rows][G]
  std::vector<float> divisors;      // [rows][G]
  std::vector<std::uint8_t> zeros;  // [rows][G], uint only
  float scale_mul = 1.0f;
};

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

// Throws an Error that names the tensor, and row and column of the value.
[[noreturn]] void fail_at(const NamedMatrix& matrix, std::int64_t index, std::string_view problem) {
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

// Throws Error if a value is not finite.
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

// Codes to store for columns [first, first + 128) of a row; value 0 after the last column.
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

PackedWeight pack_floats(const NamedMatrix& matrix, PackedWeight packed) {
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

float largest_group_scale(std::span<const float> scales, std::span<const float> group_absmax) {
  float largest = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (group_absmax[i] >= kSmallestAbsmax) largest = std::max(largest, std::fabs(scales[i]));
  }
  return largest;
}

float round_group_scales(std::span<float> scales, std::span<const float> group_absmax) {
  return round_group_scales(scales, group_absmax, largest_group_scale(scales, group_absmax));
}

float round_group_scales(std::span<float> scales, std::span<const float> group_absmax,
                         float largest) {
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
  const NamedMatrix matrix{values, rows, columns, name};
  ensure(rows > 0 && columns > 0 && static_cast<std::int64_t>(values.size()) / columns == rows &&
             static_cast<std::int64_t>(values.size()) % columns == 0,
         name, ": expected ", rows, " x ", columns, " values, found ", values.size());
  if (const CodeFormat* format = code_format(scheme.kind)) {
    require(format->nearest != nullptr, ErrorKind::bad_setting, name, ": type ", format->name,
            " has no nearest codes, they need a method; use ", Setting{"method"}, " ",
            format->method);
    require_finite(matrix, 0, rows * columns);
    return pack_codes(format->nearest(values, rows, columns), rows, columns, scheme, act);
  }
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  if (scheme.is_float()) return pack_floats(matrix, std::move(packed));
  const RoundedScales scales = choose_scales(matrix, scheme);
  packed.scale_mul = scales.scale_mul;
  PlaneWriter writer(packed);
  writer.put_scales(scales.values, scales.per_row);
  if (!scales.zeros.empty()) writer.put_zeros(scales.zeros, scales.per_row);
  CodeBlock codes;
  for (std::int64_t panel = 0; panel < rows; panel += kPanelRows) {
    const std::int64_t end = std::min(panel + kPanelRows, rows);
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      for (std::int64_t row = panel; row < end; ++row) {
        round_block(matrix, scales, scheme, row, first, codes);
        writer.put_codes(row, first, codes);
      }
    }
  }
  return packed;
}

// Packs codes that a method has chosen.

namespace {

struct Shape2 {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;    // columns that share a scale
  std::int64_t per_row = 0;  // groups per row
};

Shape2 shape_of(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : columns;
  return {rows, columns, group, (columns + group - 1) / group};
}

struct CodeRange {
  int low = 0;
  int high = 0;
};
CodeRange code_range(const QuantScheme& scheme) {
  if (scheme.kind != CodeKind::int_) return {0, (1 << scheme.bits) - 1};
  if (scheme.bits == 8) return {-127, 127};
  return {-scheme.bias(), scheme.bias() - 1};
}

void check(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme) {
  ensure(!scheme.is_float(), "pack: type ", scheme_name(scheme), " has no codes");
  ensure(
      shape.rows > 0 && shape.columns > 0 && std::ssize(chosen.codes) == shape.rows * shape.columns,
      "pack: expected ", shape.rows, " x ", shape.columns, " codes, found ", chosen.codes.size());
  const ChosenCounts counts = chosen_counts(scheme, shape.rows, shape.columns);
  ensure(std::ssize(chosen.scales) == counts.scales, "pack: expected ", counts.scales,
         " scales, found ", chosen.scales.size());
  ensure(std::ssize(chosen.zeros) == counts.zeros, "pack: expected ", counts.zeros,
         " zero points, found ", chosen.zeros.size());
  const CodeRange range = code_range(scheme);
  std::int16_t low = chosen.codes[0], high = low;
  for (const std::int16_t code : chosen.codes) {
    low = std::min(low, code), high = std::max(high, code);
  }
  ensure(low >= range.low && high <= range.high, "pack: ", scheme_name(scheme), " codes are ",
         range.low, " to ", range.high, ", found ", low, " to ", high);
  if (scheme.kind == CodeKind::uint_) {
    const int zero = *std::max_element(chosen.zeros.begin(), chosen.zeros.end());
    ensure(zero <= range.high, "pack: ", scheme_name(scheme), " zero points are 0 to ", range.high,
           ", found ", zero);
  }
}

// The code of value 0, used for padding columns.
std::uint8_t pad_code(const ChosenCodes& chosen, const Shape2& shape, const QuantScheme& scheme,
                      std::int64_t row, std::int64_t column) {
  if (const CodeFormat* format = code_format(scheme.kind)) return format->zero;
  const std::int64_t group = scheme.scaling == Scaling::group ? column / shape.group : 0;
  const bool ranged = scheme.kind == CodeKind::uint_ && group < shape.per_row;
  return ranged ? chosen.zeros[static_cast<std::size_t>(row * shape.per_row + group)]
                : static_cast<std::uint8_t>(scheme.bias());
}

}  // namespace

ChosenCounts chosen_counts(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  if (const CodeFormat* format = code_format(scheme.kind)) return format->counts(rows, columns);
  const std::int64_t groups = rows * shape_of(scheme, rows, columns).per_row;
  return {groups, scheme.kind == CodeKind::uint_ ? groups : 0};
}

PackedWeight pack_codes(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                        const QuantScheme& scheme, ActKind act) {
  const Shape2 shape = shape_of(scheme, rows, columns);
  check(chosen, shape, scheme);
  PackedWeight packed = empty_weight(scheme, act, rows, columns);
  packed.scale_mul = chosen.scale_mul;
  PlaneWriter writer(packed);
  if (const CodeFormat* format = code_format(scheme.kind)) {
    format->put(chosen, packed);
  } else {
    writer.put_scales(chosen.scales, shape.per_row);
    if (!chosen.zeros.empty()) writer.put_zeros(chosen.zeros, shape.per_row);
  }
  const int bias = scheme.bias();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t first = 0; first < columns; first += kBlockColumns) {
      CodeBlock block;
      const std::int16_t* codes = chosen.codes.data() + row * columns + first;
      const std::int64_t count = std::min(kBlockColumns, columns - first);
      std::transform(codes, codes + count, block.begin(),
                     [bias](std::int16_t code) { return static_cast<std::uint8_t>(code + bias); });
      for (std::int64_t i = count; i < kBlockColumns; ++i) {
        block[static_cast<std::size_t>(i)] = pad_code(chosen, shape, scheme, row, first + i);
      }
      writer.put_codes(row, first, block);
    }
  }
  return packed;
}

namespace {

constexpr std::uint16_t kOneAsF16 = 0x3c00;

template <class T>
void fill(std::vector<std::byte>& plane, T value) {
  for (std::size_t at = 0; at < plane.size(); at += sizeof value) {
    std::memcpy(plane.data() + at, &value, sizeof value);
  }
}

// Writes bits [from, from + bits) of each code of a block to a plane with `bits` bits per code.
void put_bits(std::byte* out, const CodeBlock& codes, int bits, int from) {
  const int quads = 8 / bits;  // quads of columns that share a byte
  const std::uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (std::size_t k = 0; k < codes.size(); k += static_cast<std::size_t>(4 * quads), out += 256) {
    std::uint32_t four_bytes = 0;
    for (int i = 0; i < quads; ++i) {
      std::uint32_t quad = 0;
      std::memcpy(&quad, codes.data() + k + static_cast<std::size_t>(4 * i), 4);
      four_bytes |= (quad >> from & mask) << (bits * i);
    }
    std::memcpy(out, &four_bytes, 4);
  }
}

}  // namespace

ZeroBytes zero_bytes(const QuantScheme& scheme) {
  if (const CodeFormat* format = code_format(scheme.kind)) {
    std::uint8_t low = 0;
    for (int at = 0; at < 8; at += format->bits)
      low = static_cast<std::uint8_t>(low | format->zero << at);
    return {low, 0};
  }
  switch (scheme.bias()) {
    case 8:
      return {0x88, 0};
    case 4:
      return {0, 0xff};  // only the third bit is set
    case 2:
      return {0xaa, 0};
    default:
      ensure(scheme.bias() == 0, "codes with bias ", scheme.bias(), " have no code of zero here");
      return {};
  }
}

PackedWeight empty_weight(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                          std::int64_t columns) {
  const PlaneBytes bytes = plane_bytes(scheme, act, rows, columns);
  PackedWeight weight;
  weight.scheme = scheme;
  if (scheme.scaling == Scaling::tensor) weight.scheme.scaling = Scaling::row;
  weight.act = act;
  weight.rows = rows;
  weight.columns = columns;
  const CodePlanes planes = code_planes(scheme, rows, columns);
  const ZeroBytes zero = zero_bytes(scheme);
  weight.codes.resize(bytes.codes, std::byte{zero.low});
  if (planes.high_bits > 0) {
    std::fill(weight.codes.begin() + planes.high_at, weight.codes.end(), std::byte{zero.high});
  }
  weight.scales.resize(bytes.scales);
  weight.zeros.resize(bytes.zeros);
  weight.sums.resize(bytes.sums);
  if (code_format(scheme.kind) != nullptr || scheme.is_float()) return weight;
  if (scheme.scaling == Scaling::group) {
    fill(weight.scales, kOneAsF16);
  } else {
    fill(weight.scales, 1.0f);
  }
  return weight;
}

PlaneWriter::PlaneWriter(PackedWeight& weight)
    : weight_(weight),
      padded_columns_(round_up(weight.columns, kPaddedColumns)),
      sum_group_(sum_group(weight.scheme, weight.act, weight.columns)),
      sums_are_per_row_(sums_are_per_row(weight.scheme, weight.act)),
      planes_(code_planes(weight.scheme, weight.rows, weight.columns)) {}

std::int64_t PlaneWriter::place_of(std::int64_t row, std::int64_t group) const {
  const std::int64_t columns = weight_.scheme.group;
  return group_index(weight_.columns, columns, row, group * columns);
}

void PlaneWriter::put_scales(std::span<const float> scales, std::int64_t per_row) {
  if (weight_.scheme.scaling != Scaling::group) {
    std::memcpy(weight_.scales.data(), scales.data(), scales.size_bytes());
    return;
  }
  for (std::int64_t row = 0; row < weight_.rows; ++row) {
    for (std::int64_t group = 0; group < per_row; ++group) {
      const float scale = scales[static_cast<std::size_t>(row * per_row + group)];
      const std::uint16_t half = f32_to_f16(scale / weight_.scale_mul);
      if (weight_.scheme.has_byte_scales()) {
        weight_.scales[static_cast<std::size_t>(place_of(row, group))] = std::byte(half >> 7);
        continue;
      }
      std::memcpy(weight_.scales.data() + place_of(row, group) * 2, &half, sizeof half);
    }
  }
}

void PlaneWriter::put_zeros(std::span<const std::uint8_t> zeros, std::int64_t per_row) {
  const bool by_row = weight_.scheme.scaling != Scaling::group;
  for (std::int64_t row = 0; row < weight_.rows; ++row) {
    for (std::int64_t group = 0; group < per_row; ++group) {
      const std::int64_t index = by_row ? row : place_of(row, group);
      weight_.zeros[static_cast<std::size_t>(index)] =
          std::byte{zeros[static_cast<std::size_t>(row * per_row + group)]};
    }
  }
}

void PlaneWriter::put_codes(std::int64_t row, std::int64_t first, const CodeBlock& codes) {
  std::byte* const planes = weight_.codes.data();
  const int low = planes_.low_bits;
  put_bits(planes + panel_byte(low, padded_columns_, row, first), codes, low, 0);
  if (planes_.high_bits > 0) {
    const int high = planes_.high_bits;
    put_bits(planes + planes_.high_at + panel_byte(high, padded_columns_, row, first), codes, high,
             low);
  }
  if (!weight_.sums.empty()) put_sums(row, first, codes);
}

void PlaneWriter::put_sums(std::int64_t row, std::int64_t first, const CodeBlock& codes) {
  const std::int64_t group = std::min(sum_group_, kBlockColumns);
  for (std::int64_t k = 0; k < kBlockColumns; k += group) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < group; ++i) {
      sum += static_cast<std::int8_t>(codes[static_cast<std::size_t>(k + i)]);
    }
    if (sums_are_per_row_) {
      std::byte* at = weight_.sums.data() + row * 4;
      std::int32_t so_far = 0;
      std::memcpy(&so_far, at, sizeof so_far);
      so_far += sum;
      std::memcpy(at, &so_far, sizeof so_far);
    } else {
      const std::int64_t groups = padded_columns_ / group;
      const std::int64_t index =
          (row / kPanelRows * groups + (first + k) / group) * kPanelRows + row % kPanelRows;
      const auto short_sum = static_cast<std::int16_t>(sum);
      std::memcpy(weight_.sums.data() + index * 2, &short_sum, sizeof short_sum);
    }
  }
}

}  // namespace leq
