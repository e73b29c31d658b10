// Method "gptq+": what plain GPTQ leaves on the table.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// Ranges that weigh errors by the inputs, or the plain ones in rows where they serve better;
// feedback as in GPTQ; coordinate descent; scales solved again. On the calibration tokens no row
// has a larger loss than "gptq" gives it. Round-to-nearest with a note where H has no factor.
MethodResult choose_gptq_plus(const MethodInput& input);

}  // namespace leq
