#include "tensor/plane_writer.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/half.h"
#include "tensor/code_formats.h"

namespace leq {
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
