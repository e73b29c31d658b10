// Method "zeroquant+": the part of ZeroQuant's layer-by-layer distillation (Yao et al. 2022) that
// needs no gradients.
#pragma once

#include "quantize/methods/method.h"

namespace leq {

// zeroquant's ranges and codes; then coordinate descent and refitted scales against X^T X of the
// unquantized model's inputs, the teacher's. On the calibration tokens no row has a larger loss
// than with "zeroquant". Throws Error where the statistics hold no X^T X of the weight's width.
MethodResult choose_zeroquant_plus(const MethodInput& input);

}  // namespace leq
