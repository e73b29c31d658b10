#include "quantize/methods/gptq.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "quantize/linear_algebra/lanes.h"
#include "quantize/linear_algebra/sliced_matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/code_errors.h"
#include "quantize/methods/lane_ranges.h"
#include "quantize/methods/method_table.h"
#include "quantize/methods/super_choice.h"

namespace leq {
namespace {

constexpr std::int64_t kStepColumns =
    kTileRows;  // columns rounded one by one between matrix products

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The rows of one task, stored in the lanes of panels.
template <class Real>
class FeedbackRows {
 public:
  static constexpr std::int64_t kLanes = kPanelLanes<Real>;
  static constexpr std::int64_t kRows = kTaskPanels * kLanes;

  FeedbackRows(const MethodInput& input, const Ranges& ranges, const Feedback<Real>& feedback,
               std::int64_t first)
      : feedback_(feedback),
        limits_(ranges.limits),
        columns_(input.columns),
        first_(first),
        count_(std::min(kRows, input.rows - first)),
        panels_((count_ + kLanes - 1) / kLanes),
        weight_(panels_, columns_),
        differences_(panels_, columns_),
        targets_(panels_, kBlockColumns),
        codes_(at(panels_ * columns_ * kLanes)),
        losses_(at(panels_ * kLanes)) {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      const std::int64_t row = first + panel * kLanes;
      rows_to_lanes(input.weight.data() + row * columns_, columns_, rows_in(panel), columns_,
                    weight_.at(panel, 0), kLanes);
      ranges_.emplace_back(ranges, row, rows_in(panel), kLanes);
    }
  }

  void round_block(std::int64_t block) {
    const std::int64_t width = std::min(kBlockColumns, columns_ - block);
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      for (std::int64_t i = 0; i < width; ++i)
        std::copy_n(weight_.at(panel, feedback_.order[at(block + i)]), kLanes,
                    targets_.at(panel, i));
    }
    feed_back({0, block}, {block, block + width}, 0);
    for (std::int64_t from = 0; from < width; from += kStepColumns) {
      const std::int64_t start = block + from;
      const std::int64_t end = block + std::min(width, from + kStepColumns);
      feed_back({block, start}, {start, end}, from);
      for (std::int64_t panel = 0; panel < panels_; ++panel) {
        for (std::int64_t i = start; i < end; ++i)
          round_column(panel, i, start, targets_.at(panel, i - block));
      }
    }
  }

  void store(FeedbackCodes& result) const {
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      const std::int64_t row = first_ + panel * kLanes;
      lanes_to_rows(codes_.data() + panel * columns_ * kLanes, kLanes, rows_in(panel), columns_,
                    result.codes.data() + row * columns_, columns_);
      std::copy_n(losses_.begin() + panel * kLanes, rows_in(panel), result.losses.begin() + row);
    }
  }

 private:
  std::int64_t rows_in(std::int64_t panel) const {
    return std::min(kLanes, count_ - panel * kLanes);
  }

  // Adds (differences of the columns in `depth`) times A to the targets of `columns`. `from`: row
  // of the first of `columns` in targets_.
  void feed_back(IndexRange depth, IndexRange columns, std::int64_t from) {
    add_lane_product(feedback_.factor, LaneProduct<Real>{.depth = depth,
                                                         .columns = columns,
                                                         .b = differences_,
                                                         .c = targets_,
                                                         .c_first = from,
                                                         .panels = panels_});
  }

  // Rounds the i-th column in rounding order. `start`: first column of the current step.
  void round_column(std::int64_t panel, std::int64_t i, std::int64_t start, const Real* targets) {
    const std::int64_t column = feedback_.order[at(i)];
    const LaneRanges& ranges = ranges_[at(panel)];
    const std::size_t range = at(ranges.index(column));
    round_kernel<Real>()({.targets = targets,
                          .factor = feedback_.factor.slice(start, start) + (i - start),
                          .before = i - start,
                          .weights = weight_.at(panel, column),
                          .scales = &ranges.scales[range],
                          .divisors = &ranges.divisors[range],
                          .zeros = &ranges.zeros[range],
                          .low = static_cast<float>(limits_.low),
                          .high = static_cast<float>(limits_.high),
                          .pivot = feedback_.pivots[at(i)],
                          .differences = differences_.at(panel, i),
                          .codes = &codes_[at((panel * columns_ + column) * kLanes)],
                          .losses = &losses_[at(panel * kLanes)]});
  }

  const Feedback<Real>& feedback_;
  CodeLimits limits_;
  std::int64_t columns_, first_, count_, panels_;
  LanePanels<Real> weight_;          // columns in stored order
  LanePanels<Real> differences_;     // w - q, columns in rounding order
  LanePanels<Real> targets_;         // targets of a block: w plus the errors fed back
  std::vector<LaneRanges> ranges_;   // ranges of each panel
  std::vector<std::int16_t> codes_;  // [panels][K][lanes], columns in stored order
  std::vector<double> losses_;       // [panels][lanes]
};

}  // namespace

template <class Real>
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback<Real>& feedback, ThreadPool& pool) {
  constexpr std::int64_t kTaskRows = FeedbackRows<Real>::kRows;
  FeedbackCodes result;
  result.codes.resize(at(input.rows * input.columns));
  result.losses.resize(at(input.rows));
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    FeedbackRows<Real> rows(input, ranges, feedback, task * kTaskRows);
    for (std::int64_t block = 0; block < input.columns; block += kBlockColumns)
      rows.round_block(block);
    rows.store(result);
  });
  return result;
}

template FeedbackCodes choose_with_feedback(const MethodInput&, const Ranges&,
                                            const Feedback<float>&, ThreadPool&);
template FeedbackCodes choose_with_feedback(const MethodInput&, const Ranges&,
                                            const Feedback<double>&, ThreadPool&);

RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback<float>& feedback,
                          ThreadPool& pool) {
  FeedbackCodes found = choose_with_feedback(input, ranges, feedback, pool);
  return {std::move(ranges), std::move(found.codes), std::move(found.losses)};
}

std::string damping_note(const MethodInput& input, const std::optional<Feedback<float>>& feedback) {
  constexpr std::string_view kAdvice = "more calibration tokens would help";
  std::ostringstream note;
  if (!feedback) {
    note << "rounded to nearest: X^T X is not positive definite, even with damping 1; " << kAdvice;
  } else if (feedback->damping != input.options.damping) {
    note << "damping raised from " << input.options.damping << " to " << feedback->damping
         << ", X^T X is not positive definite; " << kAdvice;
  }
  return note.str();
}

bool supports_gptq(const QuantScheme& scheme) { return scheme.is_integer(); }

MethodResult choose_gptq(const MethodInput& input) {
  if (input.scheme.is_super()) return choose_super_gptq(input, 0);
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  Ranges plain = plain_ranges(input);
  Ranges weighted = weighted_ranges(input);
  RowChoice choice;
  std::string note;
  {
    const auto feedback = factor_hessian<float>(input, pool);
    note = damping_note(input, feedback);
    if (!feedback) return {nearest_codes(input, weighted), note};
    share_scale_mul(plain, weighted, input.scheme);
    choice = feedback_choice(input, std::move(plain), *feedback, pool);
  }
  const Hessian hessian = loss_hessian(input, pool);
  choice.losses = row_losses(input, choice.ranges, choice.codes, hessian, pool);
  take_better_rows(nearest_choice(input, weighted, hessian, pool), input, choice);
  return result_of(std::move(choice), input, hessian, std::move(note), pool);
}

QuantMethod gptq_method() {
  return {.name = "gptq",
          .summary = "rounding errors made good in later columns (int, uint and k types)",
          .needs = Needs::hessian,
          .supports = supports_gptq,
          .choose = choose_gptq,
          .divides_rows = true,
          .own_type = "int4-g128"};
}

}  // namespace leq
