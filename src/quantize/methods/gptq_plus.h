// Method "gptq+": GPTQ with weighted ranges, coordinate descent and refitted scales.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// Steps: ranges weighted by the inputs, or plain ranges in rows where these have less loss; then
// feedback as in GPTQ; coordinate descent; refitted scales. For the calibration tokens no row has
// a larger loss than with "gptq". If H has no factor, rounds to nearest and adds a note.
MethodResult choose_gptq_plus(const MethodInput& input);

}  // namespace leq
