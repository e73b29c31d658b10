// GPTQ (Frantar et al. 2022): columns are rounded one after another, and each rounding error is
// compensated in the remaining columns, according to the second moments of the inputs.
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
  std::vector<double> losses;       // [N] d H d^T of each row, H with its damping
};

// Codes of input.weight in fixed ranges, columns in feedback.order. The loop accumulates the loss
// as the sum of D_i e_i^2, which tests check. Real: the type of the errors fed back.
template <class Real>
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback<Real>& feedback, ThreadPool& pool);

// The same with the loss of each row.
RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback<float>& feedback,
                          ThreadPool& pool);

// Note for the user about raised damping or a missing factor; empty where neither occurred.
std::string damping_note(const MethodInput& input, const std::optional<Feedback<float>>& feedback);

bool supports_gptq(const QuantScheme& scheme);

// Method "gptq": plain ranges, then feedback; a row with less loss by rtn's ranges and nearest
// codes takes those, as do all rows, with a note, where H has no factor.
MethodResult choose_gptq(const MethodInput& input);

}  // namespace leq
