// Method "zeroquant+": the part of ZeroQuant's distillation layer by layer (Yao et al. 2022) that
// needs no gradients.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// zeroquant's ranges and codes; coordinate descent and scales solved again against X^T X of the
// unquantized model's inputs, the teacher's. On the calibration tokens no row has a larger loss
// than "zeroquant" gives it. Throws Error where the statistics hold no X^T X of the weight's width.
MethodResult choose_zeroquant_plus(const MethodInput& input);

}  // namespace leq
