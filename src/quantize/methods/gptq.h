// GPTQ (Frantar et al. 2022): columns are rounded one after another, and each rounding error is
// compensated in the remaining columns according to the second moments of the inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/methods/fit.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"
#include "quantize/methods/row_choice.h"

namespace leq {

struct FeedbackCodes {
  std::vector<std::int16_t> codes;  // [N][K]
  std::vector<double> losses;       // [N] d H d^T of each row, with damped H
};

// Chooses codes of input.weight in fixed ranges, in the column order feedback.order. The loss is
// accumulated as the sum of D_i e_i^2, which tests verify. Real: type of the compensated errors.
template <class Real>
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback<Real>& feedback, ThreadPool& pool);

// Chooses codes with feedback; returns them with the ranges and the loss of each row.
RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback<float>& feedback,
                          ThreadPool& pool);

// A note for the user if damping was raised or H has no factor; otherwise empty.
std::string damping_note(const MethodInput& input, const std::optional<Feedback<float>>& feedback);

bool supports_gptq(const QuantScheme& scheme);

// Method "gptq": plain ranges, then feedback. A row takes rtn's ranges and nearest codes if these
// have less loss. If H has no factor, all rows do so and a note reports it.
MethodResult choose_gptq(const MethodInput& input);

}  // namespace leq
