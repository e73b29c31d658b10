// Methods rtn, gptq and gptq+ for types with superblock scales (q4_k, q5_k, q6_k): scales and
// minima by fit_super, weighted by the inputs, then codes as for other types. For codes without
// zero points of W + min, the errors equal those of scale * code - min from W.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

MethodResult choose_super_rtn(const MethodInput& input);
// Feedback, then coordinate descent with the given number of passes; a row with less loss by the
// nearest codes takes those, as do all rows, with a note, where H has no factor.
MethodResult choose_super_gptq(const MethodInput& input, int descent_passes);

}  // namespace leq
