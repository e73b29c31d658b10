#include "tensor/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "tensor/code_formats.h"
#include "tensor/plane_writer.h"
#include "tensor/round_weight.h"

namespace leq {
namespace {

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

}  // namespace leq
