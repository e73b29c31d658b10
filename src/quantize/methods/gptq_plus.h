// Method "gptq+": GPTQ with weighted ranges, coordinate descent and refitted scales.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// Ranges weighted by the inputs, or plain ones in rows where they lose less; feedback as in GPTQ;
// coordinate descent; scales refitted. On the calibration tokens no row has a larger loss than with
// "gptq". Round-to-nearest with a note where H has no factor.
MethodResult choose_gptq_plus(const MethodInput& input);

}  // namespace leq
