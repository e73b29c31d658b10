#include "tensor/table_codes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

constexpr float kLargestHalf = 65504.0f;

constexpr KernelTable repeated(CodeKind kind) {
  KernelTable table = {};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint8_t>(table_numbers(kind)[i % 16] + table_zero(kind));
  }
  return table;
}

NearestNumbers nearest_of(const TableNumbers& numbers) {
  NearestNumbers nearest = {};
  for (std::size_t i = 0; i < nearest.size(); ++i) {
    const float middle = (static_cast<float>(i) + 0.5f) / 2 - 128;  // of the half step
    const auto further = [&](int a, int b) {
      return std::fabs(static_cast<float>(a) - middle) < std::fabs(static_cast<float>(b) - middle);
    };
    nearest[i] = static_cast<float>(*std::ranges::min_element(numbers, further));
  }
  return nearest;
}

constexpr int table_group(CodeKind kind) { return kind == CodeKind::nvfp4 ? 16 : 32; }

template <CodeKind kKind>
std::int64_t table_groups(std::int64_t columns) {
  return (columns + table_group(kKind) - 1) / table_group(kKind);
}

// 32 columns have a f16 or two bytes.
PlaneBytes table_planes(std::int64_t padded_rows, std::int64_t padded_columns) {
  PlaneBytes bytes;
  bytes.scales = static_cast<std::uint64_t>(padded_rows * (padded_columns / 32) * 2);
  return bytes;
}

template <CodeKind kKind>
ChosenCounts table_counts(std::int64_t rows, std::int64_t columns) {
  return {rows * table_groups<kKind>(columns), 0};
}

template <CodeKind kKind>
void table_put(const ChosenCodes& chosen, PackedWeight& packed) {
  PlaneWriter(packed).put_scales(chosen.scales, table_groups<kKind>(packed.columns));
}

float table_scale(const WeightView& weight, std::int64_t row, std::int64_t column) {
  const auto* scales = static_cast<const std::uint8_t*>(weight.scales);
  const std::int64_t at = group_index(weight.columns, weight.scheme.group, row, column);
  std::uint16_t half = 0;
  if (weight.scheme.has_byte_scales()) {
    half = half_of_byte_scale(scales[at]);
  } else {
    std::memcpy(&half, scales + 2 * at, sizeof half);
  }
  return f16_to_f32(half) * weight.scale_mul;
}

void table_unpack(const WeightView& weight, std::int64_t row, std::int64_t first,
                  std::span<const std::uint8_t> codes, std::span<float> out) {
  const TableNumbers& numbers = table_numbers(weight.scheme.kind);
  float scale = 0;
  for (std::size_t k = 0; k < out.size(); ++k) {
    if (k % 16 == 0) scale = table_scale(weight, row, first + static_cast<std::int64_t>(k));
    out[k] = static_cast<float>(numbers[codes[k]]) * scale;
  }
}

template <CodeKind kKind>
std::vector<float> table_values(const ChosenCodes& chosen, std::int64_t rows,
                                std::int64_t columns) {
  const TableNumbers& numbers = table_numbers(kKind);
  std::vector<float> values;
  values.reserve(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto code = chosen.codes[static_cast<std::size_t>(row * columns + k)];
      const std::int64_t group = row * table_groups<kKind>(columns) + k / table_group(kKind);
      values.push_back(static_cast<float>(numbers[static_cast<std::size_t>(code)]) *
                       chosen.scales[static_cast<std::size_t>(group)]);
    }
  }
  return values;
}

// Rounds scales to bytes times a power of two, which is returned; the largest is within [2^-1, 1].
// The signs of scales are dropped: the table has the negative of each of its numbers.
float round_byte_scales(std::span<float> scales) {
  float largest = 0;
  for (const float scale : scales) largest = std::max(largest, std::fabs(scale));
  int exponent = 0;
  std::frexp(largest, &exponent);
  const float scale_mul = std::ldexp(1.0f, exponent);
  for (float& scale : scales) {
    const int byte = (f32_to_f16(std::fabs(scale) / scale_mul) + 64) >> 7;
    scale = f16_to_f32(half_of_byte_scale(static_cast<std::uint8_t>(byte))) * scale_mul;
  }
  return scale_mul;
}

template <CodeKind kKind>
ChosenCodes nearest_table_codes(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns) {
  constexpr std::int64_t kColumns = table_group(kKind);
  ChosenCodes chosen;
  const auto each_group = [&](auto visit) {
    for (std::int64_t row = 0, at = 0; row < rows; ++row) {
      for (std::int64_t k = 0; k < columns; k += kColumns, ++at) {
        visit(static_cast<std::size_t>(at),
              values.subspan(static_cast<std::size_t>(row * columns + k),
                             static_cast<std::size_t>(std::min(kColumns, columns - k))));
      }
    }
  };
  each_group([&](std::size_t, std::span<const float> x) {
    chosen.scales.push_back(fit_table_scale(kKind, x));
  });
  if (kKind == CodeKind::nvfp4) chosen.scale_mul = round_byte_scales(chosen.scales);
  chosen.codes.reserve(values.size());
  each_group([&](std::size_t at, std::span<const float> x) {
    const float scale = chosen.scales[at];
    for (const float value : x) {
      const int code = nearest_table_code(kKind, scale == 0 ? 0 : value / scale);
      chosen.codes.push_back(static_cast<std::int16_t>(code));
    }
  });
  return chosen;
}

void table_randomize(const RandomNumbers& to) {
  const WeightView& view = to.view;
  const std::int64_t scales = view.padded_columns() / view.scheme.group * kPanelRows;
  for (std::int64_t i = 0; i < scales; ++i) {
    const float spread = 0.5f + static_cast<float>(to.random(i, 1)) * 0x1p-24f;
    const bool pad = to.is_pad(i % kPanelRows, i / kPanelRows * view.scheme.group);
    const std::uint16_t half = f32_to_f16(pad ? 0 : to.scale * spread / view.scale_mul);
    const std::int64_t at = to.panel * scales + i;
    if (view.scheme.has_byte_scales()) {
      to.scales[at] = static_cast<std::byte>(half >> 7);
    } else {
      std::memcpy(to.scales + at * 2, &half, sizeof half);
    }
  }
}

template <CodeKind kKind>
CodeFormat table_format(std::string_view name, std::uint8_t zero, float deviation) {
  return {.kind = kKind,
          .name = name,
          .bits = 4,
          .group = table_group(kKind),
          .zero = zero,
          .deviation = deviation,
          .planes = table_planes,
          .counts = table_counts<kKind>,
          .nearest = nearest_table_codes<kKind>,
          .put = table_put<kKind>,
          .unpack = table_unpack,
          .scale_at = table_scale,
          .dequantize = table_values<kKind>,
          .randomize = table_randomize};
}

}  // namespace

CodeFormat mxfp4_format() { return table_format<CodeKind::mxfp4>("mxfp4", 0, 5.9f); }
CodeFormat iq4_nl_format() { return table_format<CodeKind::iq4_nl>("iq4_nl", 8, 67.4f); }
CodeFormat nvfp4_format() { return table_format<CodeKind::nvfp4>("nvfp4", 0, 5.9f); }

const KernelTable& kernel_table(CodeKind kind) {
  alignas(64) static constexpr KernelTable kFloat4 = repeated(CodeKind::mxfp4);
  alignas(64) static constexpr KernelTable kIq4 = repeated(CodeKind::iq4_nl);
  return kind == CodeKind::iq4_nl ? kIq4 : kFloat4;
}

const NearestNumbers& nearest_numbers(CodeKind kind) {
  static const NearestNumbers kFloat4 = nearest_of(kFloat4Doubles);
  static const NearestNumbers kIq4 = nearest_of(kIq4Levels);
  return kind == CodeKind::iq4_nl ? kIq4 : kFloat4;
}

int nearest_table_code(CodeKind kind, float x) {
  const float number = nearest_numbers(kind)[static_cast<std::size_t>(half_steps(x))];
  const TableNumbers& numbers = table_numbers(kind);
  return static_cast<int>(std::ranges::find(numbers, static_cast<std::int8_t>(number)) -
                          numbers.begin());
}

void numbers_to_codes(CodeKind kind, std::span<std::int16_t> codes) {
  std::array<std::int16_t, 256> code_of;  // of number - 128
  for (std::size_t i = 0; i < code_of.size(); ++i) {
    const float number = static_cast<float>(i) - 128;
    code_of[i] = static_cast<std::int16_t>(nearest_table_code(kind, number));
  }
  for (std::int16_t& code : codes) code = code_of[static_cast<std::size_t>(code + 128)];
}

// The scale of a group with about the least squared error: for the nearest codes under each of some
// scales, the best scale follows by regression. The largest |x| gets a number near either end of
// the table, or any other large number, so that values of the table times a scale are found again.
float fit_table_scale(CodeKind kind, std::span<const float> x, std::span<const float> weights) {
  const TableNumbers& numbers = table_numbers(kind);
  const NearestNumbers& nearest = nearest_numbers(kind);
  const auto largest = [](float a, float b) { return std::fabs(a) < std::fabs(b); };
  const float peak = *std::ranges::max_element(x, largest);
  if (std::fabs(peak) < kSmallestAbsmax) return 0;
  const auto [low, high] = std::ranges::minmax(numbers);
  const int least = std::max(-low, int{high}) / 4;
  float best = 0;
  double gain = 0;
  for (const int target : numbers) {
    if (std::abs(target) < least) continue;
    const int steps = target == low || target == high ? 4 : 0;
    for (int step = -steps; step <= steps; ++step) {
      const float inverse =
          static_cast<float>(target) * (1 + 0.04f * static_cast<float>(step)) / peak;
      double xl = 0, ll = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double number =
            static_cast<double>(nearest[static_cast<std::size_t>(half_steps(x[i] * inverse))]);
        const double weighted = number * static_cast<double>(weights.empty() ? 1.0f : weights[i]);
        xl += weighted * static_cast<double>(x[i]);
        ll += weighted * number;
      }
      if (ll == 0 || xl * xl <= gain * ll) continue;
      gain = xl * xl / ll;
      best = static_cast<float>(xl / ll);
    }
  }
  if (best == 0 && !weights.empty()) return fit_table_scale(kind, x, {});  // all weights are 0
  return f16_to_f32(f32_to_f16(std::clamp(best, -kLargestHalf, kLargestHalf)));
}

}  // namespace leq
