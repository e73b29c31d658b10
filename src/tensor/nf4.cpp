#include "tensor/nf4.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tensor/pack.h"

namespace leq {
namespace {

// Halfway between neighbouring levels, exact in double.
constexpr std::array<double, 15> kMiddles = [] {
  std::array<double, 15> middles{};
  for (std::size_t i = 0; i < middles.size(); ++i) {
    middles[i] = (static_cast<double>(kNf4Levels[i]) + static_cast<double>(kNf4Levels[i + 1])) / 2;
  }
  return middles;
}();

struct Weights {
  const float* values;
  std::int64_t rows, columns, blocks;  // blocks of a row

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

// The blocks [first, last) of the rows of one panel share first value and step of their sizes.
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

}  // namespace

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
