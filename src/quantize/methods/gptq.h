// GPTQ and gptq+: the choice of a row's codes with feedback of errors, and the comparison with
// nearest codes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"

namespace leq {

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

// Method "gptq": plain ranges, then feedback. A row takes rtn's ranges and nearest codes if these
// have less loss. If H has no factor, all rows do so and a note reports it.
MethodResult choose_gptq(const MethodInput& input);

// Method "gptq+": GPTQ with weighted ranges, coordinate descent and refitted scales.

// Steps: ranges weighted by the inputs, or plain ranges in rows where these have less loss; then
// feedback as in GPTQ; coordinate descent; refitted scales. For the calibration tokens no row has
// a larger loss than with "gptq". If H has no factor, rounds to nearest and adds a note.
MethodResult choose_gptq_plus(const MethodInput& input);

// Methods gptq and gptq+ for types with superblock scales (q4_k, q5_k, q6_k): fit_super chooses
// scales and minima, weighted by the inputs, which stay. Codes without zero points are then chosen
// for W + min as for other types; the errors equal those of scale * code - min for W.

// Method "rtn" for these types.
MethodResult choose_super_rtn(const MethodInput& input);

}  // namespace leq
