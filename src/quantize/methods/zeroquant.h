// The part of ZeroQuant (Yao et al. 2022) that corrects outputs without training.
#pragma once

#include <span>
#include <vector>

#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"

namespace leq {

// The bias correction that restores the mean of the outputs for the calibration tokens, [N]:
// b += (W - Wq) mean(x). Throws Error if the statistics have other columns or no tokens.
std::vector<float> bias_correction(const WeightPair& pair, const InputStatistics& statistics);
// W mean(x) of a weight [N][K]: [N]. Throws Error if the statistics do not match or are empty.
std::vector<float> mean_outputs(std::span<const float> weight, const InputStatistics& statistics,
                                ThreadPool& pool);

// Method "zeroquant+": the part of ZeroQuant's layer-by-layer distillation (Yao et al. 2022) that
// needs no gradients.

// Starts from zeroquant's ranges and codes; then applies coordinate descent and refits scales with
// X^T X of the inputs in the unquantized model (the teacher). For the calibration tokens no row has
// a larger loss than with "zeroquant". Throws Error without X^T X of the weight's width.
MethodResult choose_zeroquant_plus(const MethodInput& input);

}  // namespace leq
