// Methods rtn, gptq and gptq+ for types with superblock scales (q4_k, q5_k, q6_k). fit_super
// chooses scales and minima, weighted by the inputs. Codes without zero points are then chosen for
// W + min as for other types; the errors equal those of scale * code - min for W.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

MethodResult choose_super_rtn(const MethodInput& input);
// Feedback, then coordinate descent with the given number of passes. A row takes the nearest codes
// if these have less loss. If H has no factor, all rows do so and a note reports it.
MethodResult choose_super_gptq(const MethodInput& input, int descent_passes);

}  // namespace leq
