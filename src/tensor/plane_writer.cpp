#include "tensor/plane_writer.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/half.h"

namespace leq {
namespace {

constexpr std::uint16_t kOneAsF16 = 0x3c00;

template <class T>
void fill(std::vector<std::byte>& plane, T value) {
  for (std::size_t at = 0; at < plane.size(); at += sizeof value) {
    std::memcpy(plane.data() + at, &value, sizeof value);
  }
}

}  // namespace

PackedWeight empty_weight(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                          std::int64_t columns) {
  require(supported(scheme), "type ", scheme_name(scheme), " cannot be stored by this version");
  const PlaneBytes bytes = plane_bytes(scheme, act, rows, columns);
  PackedWeight weight;
  weight.scheme = scheme;
  if (scheme.scaling == Scaling::tensor) weight.scheme.scaling = Scaling::row;
  weight.act = act;
  weight.rows = rows;
  weight.columns = columns;
  weight.codes.resize(bytes.codes, scheme.bits == 4 ? std::byte{0x88} : std::byte{0});
  weight.scales.resize(bytes.scales);
  weight.sums.resize(bytes.sums);
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
      sums_are_per_row_(sums_are_per_row(weight.scheme, weight.act)) {}

void PlaneWriter::put_scales(std::span<const float> scales, std::int64_t per_row) {
  if (weight_.scheme.scaling != Scaling::group) {
    std::memcpy(weight_.scales.data(), scales.data(), scales.size_bytes());
    return;
  }
  const std::int64_t padded_groups = padded_columns_ / weight_.scheme.group;
  for (std::int64_t row = 0; row < weight_.rows; ++row) {
    for (std::int64_t group = 0; group < per_row; ++group) {
      const float scale = scales[static_cast<std::size_t>(row * per_row + group)];
      const std::uint16_t half = f32_to_f16(scale / weight_.scale_mul);
      const std::int64_t index =
          (row / kPanelRows * padded_groups + group) * kPanelRows + row % kPanelRows;
      std::memcpy(weight_.scales.data() + index * 2, &half, sizeof half);
    }
  }
}

void PlaneWriter::put_codes(std::int64_t row, std::int64_t first, const CodeBlock& codes) {
  const int bits = weight_.scheme.bits;
  std::byte* out = weight_.codes.data() +
                   row / kPanelRows * (kPanelRows * padded_columns_ * bits / 8) +
                   first * bits / 8 * kPanelRows + row % kPanelRows * 4;
  if (bits == 8) {
    for (std::size_t k = 0; k < codes.size(); k += 4, out += 256) {
      std::memcpy(out, codes.data() + k, 4);
    }
    if (!weight_.sums.empty()) put_sums(row, first, codes);
    return;
  }
  std::array<std::uint8_t, kBlockColumns> biased;
  for (std::size_t k = 0; k < codes.size(); ++k) {
    biased[k] = static_cast<std::uint8_t>(codes[k] + 8);
  }
  for (std::size_t k = 0; k < codes.size(); k += 8, out += 256) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, biased.data() + k, 4);
    std::memcpy(&high, biased.data() + k + 4, 4);
    const std::uint32_t four_bytes = low | high << 4;
    std::memcpy(out, &four_bytes, 4);
  }
}

void PlaneWriter::put_sums(std::int64_t row, std::int64_t first, const CodeBlock& codes) {
  const std::int64_t group = std::min(sum_group_, kBlockColumns);
  for (std::int64_t k = 0; k < kBlockColumns; k += group) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < group; ++i) sum += codes[static_cast<std::size_t>(k + i)];
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
