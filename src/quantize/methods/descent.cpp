#include "quantize/methods/descent.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/code_errors.h"
#include "quantize/methods/lane_ranges.h"

namespace leq {
namespace {

constexpr std::int64_t kLanes = kPanelLanes<float>;
constexpr std::int64_t kTaskRows = kTaskPanels * kLanes;
constexpr std::int64_t kStepColumns = kTileRows;
// A move by one reduces the loss if |g / (H s)| > 0.5. The margin covers rounding errors of g.
constexpr float kLeastMove = 0.501f;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The rows of one task, stored in the lanes of panels.
class DescentRows {
 public:
  DescentRows(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
              std::span<std::int16_t> codes, std::int64_t first)
      : hessian_(hessian),
        limits_(ranges.limits),
        stored_(codes),
        columns_(input.columns),
        first_(first),
        count_(std::min(kTaskRows, input.rows - first)),
        panels_((count_ + kLanes - 1) / kLanes),
        errors_(code_errors(input, ranges, codes, first, count_)),
        gradients_(panels_, kBlockColumns),
        changes_(panels_, kBlockColumns),
        codes_(at(panels_ * columns_ * kLanes)) {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      const std::int64_t row = first + panel * kLanes;
      rows_to_lanes(codes.data() + row * columns_, columns_, rows_in(panel), columns_,
                    codes_.data() + panel * columns_ * kLanes, kLanes);
      ranges_.emplace_back(ranges, row, rows_in(panel), kLanes);
    }
  }

  // One pass over all columns; returns the number of moves.
  std::int64_t sweep() {
    std::int64_t moves = 0;
    for (std::int64_t block = 0; block < columns_; block += kBlockColumns)
      moves += sweep_block(block);
    return moves;
  }

  void store() const {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      lanes_to_rows(codes_.data() + panel * columns_ * kLanes, kLanes, rows_in(panel), columns_,
                    stored_.data() + (first_ + panel * kLanes) * columns_, columns_);
    }
  }

 private:
  std::int64_t rows_in(std::int64_t panel) const {
    return std::min(kLanes, count_ - panel * kLanes);
  }

  // First computes the block's gradient H (w - q) over all columns. Then, step by step, adds the
  // contribution of the moves that earlier steps have made in this block.
  std::int64_t sweep_block(std::int64_t block) {
    const std::int64_t end = std::min(columns_, block + kBlockColumns);
    for (std::int64_t panel = 0; panel < panels_; ++panel)
      std::fill_n(gradients_.at(panel, 0), kBlockColumns * kLanes, 0.0f);
    add_lane_product(hessian_.values, LaneProduct<float>{.depth = {0, columns_},
                                                         .columns = {block, end},
                                                         .b = errors_,
                                                         .c = gradients_,
                                                         .panels = panels_});
    std::int64_t moves = 0;
    for (std::int64_t start = block; start < end; start += kStepColumns) {
      const std::int64_t stop = std::min(end, start + kStepColumns);
      add_lane_product(hessian_.values, LaneProduct<float>{.depth = {block, start},
                                                           .columns = {start, stop},
                                                           .b = changes_,
                                                           .b_first = block,
                                                           .c = gradients_,
                                                           .c_first = start - block,
                                                           .panels = panels_});
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        for (std::int64_t i = start; i < stop; ++i) moves += move_column(panel, i, start, block);
      }
    }
    return moves;
  }

  std::int64_t move_column(std::int64_t panel, std::int64_t column, std::int64_t start,
                           std::int64_t block) {
    const LaneRanges& ranges = ranges_[at(panel)];
    const std::size_t range = at(ranges.index(column));
    const float* factor = hessian_.values.slice(start, start) + (column - start);
    return tile_kernels().move({.gradients = gradients_.at(panel, column - block),
                                .factor = factor,
                                .before = column - start,
                                .scales = &ranges.scales[range],
                                .divisors = &ranges.divisors[range],
                                .curvature = factor[(column - start) * kTileRows],
                                .least_move = kLeastMove,
                                .low = static_cast<float>(limits_.low),
                                .high = static_cast<float>(limits_.high),
                                .codes = &codes_[at((panel * columns_ + column) * kLanes)],
                                .errors = errors_.at(panel, column),
                                .changes = changes_.at(panel, column - block)});
  }

  const Hessian& hessian_;
  CodeLimits limits_;
  std::span<std::int16_t> stored_;
  std::int64_t columns_, first_, count_, panels_;
  LanePanels<float> errors_;         // w - q of all columns
  LanePanels<float> gradients_;      // gradients of the current block
  LanePanels<float> changes_;        // changes of errors_ in the current block
  std::vector<LaneRanges> ranges_;   // [panels]
  std::vector<std::int16_t> codes_;  // [panels][K][lanes]
};

}  // namespace

std::int64_t descend(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                     int passes, std::span<std::int16_t> codes, ThreadPool& pool) {
  std::atomic<std::int64_t> moves = 0;
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    DescentRows rows(input, ranges, hessian, codes, task * kTaskRows);
    std::int64_t moved = 0;
    for (int pass = 0; pass < passes; ++pass) {
      const std::int64_t found = rows.sweep();
      moved += found;
      if (found == 0) break;
    }
    rows.store();
    moves += moved;
  });
  return moves;
}

}  // namespace leq
