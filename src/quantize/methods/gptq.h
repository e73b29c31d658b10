// GPTQ (Frantar et al. 2022): columns are rounded one after another, and what rounding took away is
// made good in the columns still to come, as the second moments of the inputs tell.
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

// Codes of input.weight in fixed ranges, columns in feedback.order. The sum of D_i e_i^2 that the
// loop adds up is the loss, which tests check. Real: of the errors fed back.
template <class Real>
FeedbackCodes choose_with_feedback(const MethodInput& input, const Ranges& ranges,
                                   const Feedback<Real>& feedback, ThreadPool& pool);

// The same with their losses.
RowChoice feedback_choice(const MethodInput& input, Ranges ranges, const Feedback<float>& feedback,
                          ThreadPool& pool);

// What a user should know of how the factor came about; empty where all went well.
std::string damping_note(const MethodInput& input, const std::optional<Feedback<float>>& feedback);

bool supports_gptq(const QuantScheme& scheme);

// Method "gptq": plain ranges, then feedback; a row that rtn's ranges and nearest codes serve
// better takes those, as all do with a note where H has no factor.
MethodResult choose_gptq(const MethodInput& input);

}  // namespace leq
