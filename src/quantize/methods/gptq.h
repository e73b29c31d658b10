// Parts of GPTQ and of the methods that start from it: choosing a row's codes with feedback of
// errors, the comparison with nearest codes, and the variants for superblocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"

namespace leq {

// Scales, divisors and zero points of a panel's rows, by lane. Each array is [G][lanes]. Unused
// lanes have scale 1 and zero point 0.
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

// Ranges and codes of a weight with the loss of each row, so that the best of several choices can
// be taken for each row.
struct RowChoice {
  Ranges ranges;
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<double> losses;       // [N] d H d^T, d = w - q
};

// Converts the scales of `left` and `right` to one scale_mul, so that a tensor can mix their rows.
void share_scale_mul(Ranges& left, Ranges& right, const QuantScheme& scheme);

// Nearest codes in the given ranges, with losses under `hessian`.
RowChoice nearest_choice(const MethodInput& input, const Ranges& ranges, const Hessian& hessian,
                         ThreadPool& pool);

// Replaces rows by those of `other` with a smaller loss; all rows or none if rows share one scale.
// The ranges of both choices must share one scale_mul, and their losses must be under one H.
void take_better_rows(const RowChoice& other, const MethodInput& input, RowChoice& choice);

// The choice as a method's result, with its losses under `hessian`.
MethodResult result_of(RowChoice choice, const MethodInput& input, const Hessian& hessian,
                       std::string note, ThreadPool& pool);

// GPTQ (Frantar et al. 2022): columns are rounded one after another, and each rounding error is
// compensated in the remaining columns according to the second moments of the inputs.
struct FeedbackCodes {
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<double> losses;       // [N] d H d^T of each row, with damped H
};

// Chooses codes of input.weight in fixed ranges, in the column order feedback.order. The loss is
// accumulated as the sum of D_i e_i^2, which tests verify.
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback& feedback, ThreadPool& pool);

// Chooses codes with feedback; returns them with the ranges and the loss of each row.
RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback& feedback,
                          ThreadPool& pool);

// A note for the user if damping was raised or H has no factor; otherwise empty.
std::string damping_note(const MethodInput& input, const std::optional<Feedback>& feedback);

// Method "gptq": plain ranges, then feedback. A row takes rtn's ranges and nearest codes if these
// have less loss. If H has no factor, all rows do so and a note reports it.
MethodResult choose_gptq(const MethodInput& input);

// Method "gptq+": GPTQ with weighted ranges, coordinate descent and refitted scales.

// Steps: ranges weighted by the inputs, or plain ranges in rows where these have less loss; then
// feedback as in GPTQ; coordinate descent; refitted scales. For the calibration tokens no row has
// a larger loss than with "gptq". If H has no factor, rounds to nearest and adds a note.
MethodResult choose_gptq_plus(const MethodInput& input);

// Methods rtn, gptq and gptq+ for types with superblock scales (q4_k, q5_k, q6_k). fit_super
// chooses scales and minima, weighted by the inputs. Codes without zero points are then chosen for
// W + min as for other types; the errors equal those of scale * code - min for W.
MethodResult choose_super_rtn(const MethodInput& input);
// Feedback, then coordinate descent with the given number of passes. A row takes the nearest codes
// if these have less loss. If H has no factor, all rows do so and a note reports it.
MethodResult choose_super_gptq(const MethodInput& input, int descent_passes);

}  // namespace leq
