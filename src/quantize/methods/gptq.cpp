#include "quantize/methods/gptq.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quantize/linear_algebra/matrix.h"
#include "quantize/linear_algebra/tile_kernels.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "tensor/super_blocks.h"

namespace leq {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Ranges and codes of a weight with the loss of each row, so that the best of several choices can
// be taken for each row.
struct RowChoice {
  Ranges ranges;
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<double> losses;       // [N] d H d^T, d = w - q
};

void copy_row(const RowChoice& from, std::int64_t row, std::int64_t columns, RowChoice& to) {
  const std::int64_t groups = from.ranges.per_row;
  const auto copy = [row](const auto& source, auto& target, std::int64_t count) {
    if (!source.empty())
      std::copy_n(source.begin() + row * count, count, target.begin() + row * count);
  };
  copy(from.ranges.scales, to.ranges.scales, groups);
  copy(from.ranges.divisors, to.ranges.divisors, groups);
  copy(from.ranges.zeros, to.ranges.zeros, groups);
  copy(from.codes, to.codes, columns);
  to.losses[at(row)] = from.losses[at(row)];
}

// Converts the scales of `left` and `right` to one scale_mul, so that a tensor can mix their rows.
void share_scale_mul(Ranges& left, Ranges& right, const QuantScheme& scheme) {
  const float shared = std::max(left.scale_mul, right.scale_mul);
  for (Ranges* ranges : {&left, &right}) {
    ranges->scale_mul = shared;
    for (std::size_t i = 0; i < ranges->scales.size(); ++i) {
      const float stored = stored_scale(ranges->scales[i], shared, scheme);
      const bool usable = ranges->divisors[i] != std::numeric_limits<float>::infinity();
      ranges->scales[i] = usable && stored != 0 ? stored : shared;
      if (stored == 0)
        ranges->divisors[i] = std::numeric_limits<float>::infinity();
      else if (usable)
        ranges->divisors[i] = stored;
    }
  }
}

// Nearest codes in the given ranges, with losses under `hessian`.
RowChoice nearest_choice(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                         ThreadPool& pool) {
  RowChoice choice = {ranges, nearest_codes(input, ranges).codes, {}};
  choice.losses = row_losses(input, choice.ranges, choice.codes, hessian, pool);
  return choice;
}

// Replaces rows by those of `other` with a smaller loss; all rows or none if rows share one scale.
// The ranges of both choices must share one scale_mul, and their losses must be under one H.
void take_better_rows(const RowChoice& other, const MethodInput& input, RowChoice& choice) {
  if (input.scheme.scaling == Scaling::tensor) {
    const auto total = [](const RowChoice& of) {
      return std::accumulate(of.losses.begin(), of.losses.end(), 0.0);
    };
    if (total(other) < total(choice)) choice = other;
    return;
  }
  for (std::int64_t row = 0; row < input.rows; ++row) {
    if (other.losses[at(row)] < choice.losses[at(row)]) copy_row(other, row, input.columns, choice);
  }
}

constexpr std::int64_t kStepColumns =
    kTileRows;  // columns rounded one by one between matrix products

// The rows of one task, stored in the lanes of panels.
class FeedbackRows {
 public:
  static constexpr std::int64_t kLanes = kPanelLanes<float>;
  static constexpr std::int64_t kRows = kTaskPanels * kLanes;

  FeedbackRows(const MethodInput& input, const Ranges& ranges, const Feedback& feedback,
               std::int64_t first)
      : feedback_(feedback),
        limits_(ranges.limits),
        columns_(input.columns),
        first_(first),
        count_(std::min(kRows, input.rows - first)),
        panels_((count_ + kLanes - 1) / kLanes),
        weight_(panels_, columns_),
        differences_(panels_, columns_),
        targets_(panels_, kBlockDepth),
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
    const std::int64_t width = std::min(kBlockDepth, columns_ - block);
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
    add_lane_product(feedback_.factor, LaneProduct{.depth = depth,
                                                   .columns = columns,
                                                   .b = differences_,
                                                   .c = targets_,
                                                   .c_first = from,
                                                   .panels = panels_});
  }

  // Rounds the i-th column in rounding order. `start`: first column of the current step.
  void round_column(std::int64_t panel, std::int64_t i, std::int64_t start, const float* targets) {
    const std::int64_t column = feedback_.order[at(i)];
    const LaneRanges& ranges = ranges_[at(panel)];
    const std::size_t range = at(ranges.index(column));
    tile_kernels().round({.targets = targets,
                          .factor = feedback_.factor.slice(start, start) + (i - start),
                          .before = i - start,
                          .weights = weight_.at(panel, column),
                          .scales = &ranges.scales[range],
                          .divisors = &ranges.divisors[range],
                          .zeros = &ranges.zeros[range],
                          .low = static_cast<float>(limits_.low),
                          .high = static_cast<float>(limits_.high),
                          .table = limits_.table,
                          .pivot = feedback_.pivots[at(i)],
                          .differences = differences_.at(panel, i),
                          .codes = &codes_[at((panel * columns_ + column) * kLanes)],
                          .losses = &losses_[at(panel * kLanes)]});
  }

  const Feedback& feedback_;
  CodeLimits limits_;
  std::int64_t columns_, first_, count_, panels_;
  LanePanels<float> weight_;         // columns in stored order
  LanePanels<float> differences_;    // w - q, columns in rounding order
  LanePanels<float> targets_;        // targets of a block: w plus the errors fed back
  std::vector<LaneRanges> ranges_;   // ranges of each panel
  std::vector<std::int16_t> codes_;  // [panels][K][lanes], columns in stored order
  std::vector<double> losses_;       // [panels][lanes]
};

}  // namespace

FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback& feedback, ThreadPool& pool) {
  constexpr std::int64_t kTaskRows = FeedbackRows::kRows;
  FeedbackCodes result;
  result.codes.resize(at(input.rows * input.columns));
  result.losses.resize(at(input.rows));
  pool.run((input.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    FeedbackRows rows(input, ranges, feedback, task * kTaskRows);
    for (std::int64_t block = 0; block < input.columns; block += kBlockDepth)
      rows.round_block(block);
    rows.store(result);
  });
  return result;
}

namespace {

// A note for the user if damping was raised or H has no factor; otherwise empty.
std::string damping_note(const MethodInput& input, const std::optional<Feedback>& feedback) {
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

// Superblock scales as a file stores them, and as ranges of codes without zero points.
struct SuperRanges {
  SuperLayout layout;
  std::vector<float> supers;       // [N][ceil(K/256)][layout.supers]
  std::vector<std::uint8_t> subs;  // [N][ceil(K/sub_columns)][layout.subs]
  std::vector<float> shifted;      // [N][K] W + min
  Ranges ranges;
  int zero = 0;  // stored code = code + zero
};

SuperRanges empty_ranges(const MethodInput& input) {
  SuperRanges result;
  const SuperLayout layout = result.layout = super_layout(input.scheme.kind);
  result.zero = input.scheme.kind == CodeKind::q6_k ? kSuper6Zero : 0;
  Ranges& ranges = result.ranges;
  ranges.group = layout.sub_columns;
  ranges.per_row = layout.sub_blocks(input.columns);
  ranges.limits = {-result.zero, (1 << input.scheme.bits) - 1 - result.zero};
  ranges.scales.resize(at(input.rows * ranges.per_row));
  ranges.divisors.resize(ranges.scales.size());
  result.subs.resize(at(input.rows * ranges.per_row * layout.subs));
  result.supers.resize(at(input.rows * layout.super_blocks(input.columns) * layout.supers));
  result.shifted.assign(input.weight.begin(), input.weight.end());
  return result;
}

// Sets scale and minimum of the sub-block at `column` to those that its superblock decodes to.
void set_range(const MethodInput& input, std::int64_t row, std::int64_t column, const float* supers,
               const std::uint8_t* sub, SuperRanges& to) {
  const bool has_min = to.layout.subs > 1;
  const int factor = has_min ? *sub : static_cast<std::int8_t>(*sub);
  const float scale = supers[0] * static_cast<float>(factor);
  const std::size_t range = to.ranges.index(row, column);
  to.ranges.scales[range] = scale;
  to.ranges.divisors[range] = scale == 0 ? std::numeric_limits<float>::infinity() : scale;
  if (!has_min) return;
  const float min = supers[1] * static_cast<float>(sub[1]);
  const std::int64_t end = std::min(column + to.layout.sub_columns, input.columns);
  for (std::int64_t k = column; k < end; ++k) to.shifted[at(row * input.columns + k)] += min;
}

void fit_row(const MethodInput& input, std::span<const float> importance, std::int64_t row,
             SuperRanges& to) {
  const SuperLayout& layout = to.layout;
  for (std::int64_t k = 0; k < input.columns; k += kSuperColumns) {
    const std::int64_t count = std::min(kSuperColumns, input.columns - k);
    float* supers = &to.supers[at((row * layout.super_blocks(input.columns) + k / kSuperColumns) *
                                  layout.supers)];
    std::uint8_t* subs =
        &to.subs[at((row * to.ranges.per_row + k / layout.sub_columns) * layout.subs)];
    fit_super(
        input.scheme.kind,
        {input.weight.subspan(at(row * input.columns + k), at(count)),
         importance.empty() ? importance : importance.subspan(at(k), at(count)), supers, subs});
    for (std::int64_t sub = 0; sub * layout.sub_columns < count; ++sub) {
      set_range(input, row, k + sub * layout.sub_columns, supers, subs + sub * layout.subs, to);
    }
  }
}

SuperRanges super_ranges(const MethodInput& input) {
  require_finite(input);
  SuperRanges result = empty_ranges(input);
  const std::vector<float> importance = input_importance(input);
  for_rows(input.pool, input.rows,
           [&](std::int64_t row) { fit_row(input, importance, row, result); });
  return result;
}

MethodInput shifted_input(const MethodInput& input, const SuperRanges& super) {
  MethodInput shifted = input;
  shifted.weight = super.shifted;
  return shifted;
}

// Combines the codes of the shifted weight with the stored scales and minima.
ChosenCodes with_supers(std::vector<std::int16_t> codes, SuperRanges super) {
  for (std::int16_t& code : codes) code = static_cast<std::int16_t>(code + super.zero);
  return {
      .codes = std::move(codes), .scales = std::move(super.supers), .zeros = std::move(super.subs)};
}

}  // namespace

MethodResult choose_super_rtn(const MethodInput& input) {
  SuperRanges super = super_ranges(input);
  ChosenCodes nearest = nearest_codes(shifted_input(input, super), super.ranges);
  return {with_supers(std::move(nearest.codes), std::move(super)), ""};
}

namespace {

RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback& feedback,
                          ThreadPool& pool) {
  FeedbackCodes found = choose_with_feedback(input, ranges, feedback, pool);
  return {std::move(ranges), std::move(found.codes), std::move(found.losses)};
}

// gptq or, with `plus`, gptq+. Superblocks and codes with a table have one kind of ranges, and the
// scales of superblocks are not refitted.
MethodResult choose_by_feedback(const MethodInput& input, bool plus) {
  ThreadPool alone(1);
  ThreadPool& pool = input.pool == nullptr ? alone : *input.pool;
  std::optional<SuperRanges> super;
  if (input.scheme.is_super()) super = super_ranges(input);
  const MethodInput target = super ? shifted_input(input, *super) : input;
  Ranges weighted = super ? super->ranges : weighted_ranges(input);
  const bool one_kind = super || input.scheme.has_table();
  Ranges plain = one_kind ? weighted : plain_ranges(input);
  const bool both = plus && !one_kind;
  const auto as_stored = [&](ChosenCodes chosen) {
    if (super) return with_supers(std::move(chosen.codes), std::move(*super));
    if (input.scheme.has_table()) numbers_to_codes(input.scheme.kind, chosen.codes);
    return chosen;
  };
  RowChoice choice, safe;
  std::string note;
  {
    const auto feedback = factor_hessian(input, pool);
    note = damping_note(input, feedback);
    if (!feedback) {
      return {as_stored(nearest_codes(target, weighted)), note};
    }
    if (!one_kind) share_scale_mul(plain, weighted, input.scheme);
    if (both) safe = feedback_choice(target, plain, *feedback, pool);
    choice = feedback_choice(target, plus ? weighted : plain, *feedback, pool);
    if (both) take_better_rows(safe, target, choice);
  }
  Hessian hessian = prepare_hessian(input, 0, pool);
  if (plus) {
    descend(target, choice.ranges, hessian, input.options.descent_passes, choice.codes, pool);
  }
  if (plus && !super && input.options.refit_scales) {
    refit_scales(target, choice.codes, hessian, choice.ranges, pool);
  }
  clear_dead_inputs(*input.statistics, hessian);
  choice.losses = row_losses(target, choice.ranges, choice.codes, hessian, pool);
  if (both) {
    safe.losses = row_losses(target, safe.ranges, safe.codes, hessian, pool);
    take_better_rows(safe, target, choice);
  }
  take_better_rows(nearest_choice(target, weighted, hessian, pool), target, choice);
  MethodResult result;
  result.codes = as_stored({.codes = std::move(choice.codes),
                            .scales = std::move(choice.ranges.scales),
                            .scale_mul = choice.ranges.scale_mul,
                            .zeros = std::move(choice.ranges.zeros)});
  result.note = std::move(note);
  result.outputs = {std::move(choice.losses), row_energies(input.weight, hessian, pool)};
  return result;
}

}  // namespace

MethodResult choose_gptq(const MethodInput& input) { return choose_by_feedback(input, false); }

MethodResult choose_gptq_plus(const MethodInput& input) { return choose_by_feedback(input, true); }

}  // namespace leq
