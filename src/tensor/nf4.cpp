#include "tensor/nf4.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "tensor/code_formats.h"
#include "tensor/pack.h"

namespace leq {
namespace {

// Midpoints between neighbouring levels, exact in double.
constexpr std::array<double, 15> kMiddles = [] {
  std::array<double, 15> middles{};
  for (std::size_t i = 0; i < middles.size(); ++i) {
    middles[i] = (static_cast<double>(kNf4Levels[i]) + static_cast<double>(kNf4Levels[i + 1])) / 2;
  }
  return middles;
}();

struct Weights {
  const float* values;
  std::int64_t rows, columns, blocks;  // blocks per row

  std::int64_t count(std::int64_t block) const {
    return std::min(kNf4Block, columns - block * kNf4Block);
  }
  const float* at(std::int64_t row, std::int64_t block) const {
    return values + row * columns + block * kNf4Block;
  }
};

float absmax(const float* x, std::int64_t count) {
  float largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

void choose_block(const float* x, std::int64_t count, float size, std::int16_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::int16_t>(size > 0 ? nearest_nf4(x[i] / size) : kNf4Zero);
  }
}

// Chooses the first value and step that the sizes of blocks [first, last) in a panel's rows share.
void choose_part(const Weights& weights, std::int64_t first_row, std::int64_t first,
                 std::int64_t last, float* scales, ChosenCodes& chosen) {
  const std::int64_t end_row = std::min(first_row + kPanelRows, weights.rows);
  std::vector<float> sizes;
  for (std::int64_t row = first_row; row < end_row; ++row) {
    for (std::int64_t block = first; block < last; ++block) {
      sizes.push_back(absmax(weights.at(row, block), weights.count(block)));
    }
  }
  const auto [low, high] = std::minmax_element(sizes.begin(), sizes.end());
  scales[0] = *low;
  scales[1] = (*high - *low) / 255.0f;
  std::size_t i = 0;
  for (std::int64_t row = first_row; row < end_row; ++row) {
    for (std::int64_t block = first; block < last; ++block, ++i) {
      const float u =
          scales[1] > 0 ? std::min(std::nearbyint((sizes[i] - scales[0]) / scales[1]), 255.0f) : 0;
      chosen.zeros[static_cast<std::size_t>(row * weights.blocks + block)] =
          static_cast<std::uint8_t>(u);
      const float size = sizes[i] < kSmallestAbsmax ? 0.0f : std::fma(u, scales[1], scales[0]);
      choose_block(weights.at(row, block), weights.count(block), size,
                   chosen.codes.data() + row * weights.columns + block * kNf4Block);
    }
  }
}

std::int64_t ceil_divided(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

// Address of the first value and step for the block sizes of 64 rows x 256 columns.
const float* sizes_at(const float* scales, std::int64_t columns, std::int64_t row,
                      std::int64_t column) {
  const std::int64_t parts = ceil_divided(columns, kNf4SizeColumns);
  return scales + (row / kPanelRows * parts + column / kNf4SizeColumns) * 2;
}

PlaneBytes planes(std::int64_t padded_rows, std::int64_t padded_columns) {
  PlaneBytes bytes;
  bytes.scales = static_cast<std::uint64_t>(padded_rows / kPanelRows *
                                            ceil_divided(padded_columns, kNf4SizeColumns) * 2 * 4);
  bytes.zeros = static_cast<std::uint64_t>(padded_rows * (padded_columns / kNf4Block));
  return bytes;
}

ChosenCounts counts(std::int64_t rows, std::int64_t columns) {
  return {ceil_divided(rows, kPanelRows) * ceil_divided(columns, kNf4SizeColumns) * 2,
          rows * ceil_divided(columns, kNf4Block)};
}

void put(const ChosenCodes& chosen, PackedWeight& packed) {
  PlaneWriter(packed).put_zeros(chosen.zeros, ceil_divided(packed.columns, kNf4Block));
  // Copied whole, because ceil(K/256) and ceil(Kp/256) are equal: Kp is a multiple of 128.
  std::memcpy(packed.scales.data(), chosen.scales.data(), chosen.scales.size() * sizeof(float));
}

float size_at(const WeightView& weight, std::int64_t row, std::int64_t column) {
  const float* sizes =
      sizes_at(static_cast<const float*>(weight.scales), weight.columns, row, column);
  const auto u = weight.zeros[group_index(weight.columns, kNf4Block, row, column)];
  return std::fma(static_cast<float>(u), sizes[1], sizes[0]);
}

void unpack(const WeightView& weight, std::int64_t row, std::int64_t first,
            std::span<const std::uint8_t> codes, std::span<float> out) {
  const float size = size_at(weight, row, first);
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = kNf4Levels[codes[k] & 15] * size;
}

std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns) {
  const std::int64_t blocks = ceil_divided(columns, kNf4Block);
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto i = static_cast<std::size_t>(row * columns + k);
      const float* sizes = sizes_at(chosen.scales.data(), columns, row, k);
      const auto u = chosen.zeros[static_cast<std::size_t>(row * blocks + k / kNf4Block)];
      const float size = std::fma(static_cast<float>(u), sizes[1], sizes[0]);
      values[i] = size * kNf4Levels[static_cast<std::size_t>(chosen.codes[i])];
    }
  }
  return values;
}

// Sets random block sizes within a factor of two around the scale.
void randomize(const RandomNumbers& to) {
  const std::int64_t sizes = to.view.padded_columns() / kNf4Block * kPanelRows;
  for (std::int64_t i = 0; i < sizes; ++i) {
    const std::uint32_t size = to.is_pad(i % kPanelRows) ? 0 : to.random(i, 3) % 256;
    to.zeros[to.panel * sizes + i] = static_cast<std::byte>(size);
  }
  const std::int64_t parts = ceil_divided(to.view.padded_columns(), kNf4SizeColumns);
  const float pair[2] = {to.scale * 0.7f, to.scale * 0.6f / 255.0f};
  for (std::int64_t i = 0; i < parts; ++i) {
    std::memcpy(to.scales + (to.panel * parts + i) * 8, pair, sizeof pair);
  }
}

}  // namespace

CodeFormat nf4_format() {
  return {.kind = CodeKind::nf4,
          .name = "nf4",
          .bits = 4,
          .group = kNf4Block,
          .zero = kNf4Zero,
          .deviation = 0.5f,
          .planes = planes,
          .counts = counts,
          .nearest = choose_nf4,
          .put = put,
          .unpack = unpack,
          .scale_at = size_at,
          .dequantize = dequantize,
          .randomize = randomize};
}

int nearest_nf4(float value) {
  const auto above = std::lower_bound(kMiddles.begin(), kMiddles.end(), static_cast<double>(value));
  return static_cast<int>(above - kMiddles.begin());
}

ChosenCodes choose_nf4(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  ensure(rows > 0 && columns > 0 && std::ssize(values) == rows * columns, "nf4: expected ", rows,
         " x ", columns, " values, found ", values.size());
  const Weights weights{values.data(), rows, columns, (columns + kNf4Block - 1) / kNf4Block};
  constexpr std::int64_t kBlocks = kNf4SizeColumns / kNf4Block;
  const std::int64_t parts = (weights.blocks + kBlocks - 1) / kBlocks;
  const std::int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  ChosenCodes chosen;
  chosen.codes.resize(values.size());
  chosen.zeros.resize(static_cast<std::size_t>(rows * weights.blocks));
  chosen.scales.resize(static_cast<std::size_t>(panels * parts * 2));
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    for (std::int64_t part = 0; part < parts; ++part) {
      choose_part(weights, panel * kPanelRows, part * kBlocks,
                  std::min((part + 1) * kBlocks, weights.blocks),
                  chosen.scales.data() + (panel * parts + part) * 2, chosen);
    }
  }
  return chosen;
}

}  // namespace leq
