// Method "zeroquant+": the part of ZeroQuant's layer-by-layer distillation (Yao et al. 2022) that
// needs no gradients.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// Starts from zeroquant's ranges and codes; then applies coordinate descent and refits scales with
// X^T X of the inputs in the unquantized model (the teacher). For the calibration tokens no row has
// a larger loss than with "zeroquant". Throws Error without X^T X of the weight's width.
MethodResult choose_zeroquant_plus(const MethodInput& input);

}  // namespace leq
