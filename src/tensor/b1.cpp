// b1: the sign of a weight and a second bit (BiLLM, Huang et al. 2024, section 3). In an ordinary
// column the second bit selects small or large values, in a salient column it is the sign of the
// residual. A value is a mean plus or minus a size; in a salient column it is the sum of two such
// numbers. 128 columns of a row share eight f16 numbers: mean and size of the salient part, of its
// residual, of the small values and of the large values.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/half.h"
#include "tensor/code_formats.h"

namespace leq {
namespace {

constexpr std::int64_t kGroup = 128;
constexpr std::int64_t kNumbers = 8;
using Numbers = std::array<float, kNumbers>;

float level(const Numbers& numbers, std::size_t part, bool plus) {
  return plus ? numbers[2 * part] + numbers[2 * part + 1]
              : numbers[2 * part] - numbers[2 * part + 1];
}

float value(const Numbers& numbers, int code, bool salient) {
  const bool first = (code & 1) != 0, second = (code & 2) != 0;
  return salient ? level(numbers, 0, first) + level(numbers, 1, second)
                 : level(numbers, second ? 3 : 2, first);
}

std::int64_t groups_of(std::int64_t columns) { return (columns + kGroup - 1) / kGroup; }

PlaneBytes planes(std::int64_t padded_rows, std::int64_t padded_columns) {
  PlaneBytes bytes;
  bytes.scales = static_cast<std::uint64_t>(padded_rows * (padded_columns / kGroup) * kNumbers * 2);
  bytes.zeros = static_cast<std::uint64_t>(padded_columns / 8);
  return bytes;
}

ChosenCounts counts(std::int64_t rows, std::int64_t columns) {
  return {rows * groups_of(columns) * kNumbers, columns};
}

void put(const ChosenCodes& chosen, PackedWeight& packed) {
  const std::int64_t per_row = groups_of(packed.columns);
  for (std::int64_t row = 0; row < packed.rows; ++row) {
    for (std::int64_t i = 0; i < per_row * kNumbers; ++i) {
      const float number =
          chosen.scales[static_cast<std::size_t>(row * per_row * kNumbers + i)] / packed.scale_mul;
      const std::uint16_t half = f32_to_f16(number);
      const std::int64_t group = group_index(packed.columns, kGroup, row, i / kNumbers * kGroup);
      std::memcpy(packed.scales.data() + (group * kNumbers + i % kNumbers) * 2, &half, sizeof half);
    }
  }
  for (std::int64_t k = 0; k < packed.columns; ++k) {
    if (chosen.zeros[static_cast<std::size_t>(k)] == 0) continue;
    packed.zeros[static_cast<std::size_t>(k / 8)] |= std::byte{1} << (k % 8);
  }
}

void unpack(const WeightView& weight, std::int64_t row, std::int64_t first,
            std::span<const std::uint8_t> codes, std::span<float> out) {
  const auto* halves = static_cast<const std::byte*>(weight.scales) +
                       group_index(weight.columns, kGroup, row, first) * kNumbers * 2;
  Numbers numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, halves + i * 2, sizeof half);
    numbers[i] = f16_to_f32(half) * weight.scale_mul;
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    const auto column = first + static_cast<std::int64_t>(k);
    out[k] = value(numbers, codes[k], (weight.zeros[column / 8] >> (column % 8) & 1) != 0);
  }
}

std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns) {
  const std::int64_t groups = groups_of(columns);
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto i = static_cast<std::size_t>(row * columns + k);
      Numbers numbers;
      std::copy_n(chosen.scales.begin() + (row * groups + k / kGroup) * kNumbers, kNumbers,
                  numbers.begin());
      values[i] = value(numbers, chosen.codes[i], chosen.zeros[static_cast<std::size_t>(k)] != 0);
    }
  }
  return values;
}

// Sets means near 0 and sizes near the scale; every sixteenth column is salient.
void randomize(const RandomNumbers& to) {
  const std::int64_t numbers = to.view.padded_columns() / kGroup * kPanelRows * kNumbers;
  for (std::int64_t i = 0; i < numbers; ++i) {
    const float spread = static_cast<float>(to.random(i, 1)) * 0x1p-24f;
    const float number = i % 2 == 0 ? 0.2f * (spread - 0.5f) : 0.5f + spread;
    const bool pad = to.is_pad(i / kNumbers % kPanelRows);
    const std::uint16_t half = f32_to_f16(pad ? 0.0f : number * to.scale / to.view.scale_mul);
    std::memcpy(to.scales + (to.panel * numbers + i) * 2, &half, sizeof half);
  }
  if (to.panel != 0) return;
  for (std::int64_t i = 0; i < to.view.columns / 8; ++i) to.zeros[i] = std::byte(i % 2);
}

}  // namespace

CodeFormat b1_format() {
  return {.kind = CodeKind::b1,
          .name = "b1",
          .bits = 2,
          .group = kGroup,
          .method = "billm",
          .planes = planes,
          .counts = counts,
          .put = put,
          .unpack = unpack,
          .dequantize = dequantize,
          .randomize = randomize};
}

}  // namespace leq
