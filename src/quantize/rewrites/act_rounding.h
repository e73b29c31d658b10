// What int8 activations make of a linear's inputs: the fixed scale of `act tensor`, the rounding
// of each mode, and whether a fixed scale is good enough.
#pragma once

#include <cstdint>
#include <span>

#include "quantize/calibration/statistics.h"
#include "quantize/rewrites/site.h"
#include "tensor/weight_layout.h"

namespace leq {

// The scale of one for all values, fixed before they are seen: c / 127 for the c of least squared
// error over the histogram among the absmax and the 99.99 and 99.9 percent quantiles of |x|.
float static_act_scale(const InputStatistics& statistics);
// The same of the values at hand.
float static_act_scale(std::span<const float> values);

// Rounds the rows of x [T][K] to int8 in place, as `act` does at run time: none = as they are; row
// and g128 by their own absmax; tensor by static_act_scale of all; online by the absmax of all.
void round_activations(std::span<float> x, std::int64_t columns, ActKind act);

// ||Y - Yq||^2 of a site, Y = X W^T and Yq the same with weights rounded to their scheme and inputs
// to int8: by one fixed scale, and by a scale for each token. X are the sampled tokens, each
// standing for as many as lie between two of them, and the token of the largest input.
struct ActErrors {
  double fixed = 0;
  double by_token = 0;
};
ActErrors act_errors(const Site& site, const QuantScheme& weight, float scale);

}  // namespace leq
