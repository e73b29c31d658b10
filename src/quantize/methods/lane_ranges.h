// Scales, divisors and zero points of a panel's rows, by lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quantize/methods/fit.h"

namespace leq {

// Each array is [G][lanes]. Unused lanes have scale 1 and zero point 0.
struct LaneRanges {
  LaneRanges(const Ranges& ranges, std::int64_t first, std::int64_t count, std::int64_t lanes)
      : lanes_(lanes), group_(ranges.group) {
    const auto size = static_cast<std::size_t>(ranges.per_row * lanes);
    scales.assign(size, 1.0f);
    divisors.assign(size, 1.0f);
    zeros.assign(size, 0.0f);
    for (std::int64_t row = 0; row < std::min(count, lanes); ++row) {
      for (std::int64_t g = 0; g < ranges.per_row; ++g) {
        const auto from = static_cast<std::size_t>((first + row) * ranges.per_row + g);
        const auto to = static_cast<std::size_t>(g * lanes + row);
        scales[to] = ranges.scales[from];
        divisors[to] = ranges.divisors[from];
        zeros[to] = static_cast<float>(ranges.zero(from));
      }
    }
  }

  // Index of lane 0 in the group that contains the column.
  std::int64_t index(std::int64_t column) const { return column / group_ * lanes_; }

  std::vector<float> scales, divisors, zeros;

 private:
  std::int64_t lanes_, group_;
};

}  // namespace leq
