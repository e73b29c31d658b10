// The effect of rounding a linear's inputs to int8: the fixed scale of `act tensor`, the rounding
// of each mode, and whether a fixed scale is accurate enough.
#pragma once

#include <cstdint>
#include <span>

#include "quantize/calibration/statistics.h"
#include "quantize/rewrites/fold.h"
#include "tensor/weight_layout.h"

namespace leq {

// The fixed scale for all values, c / 127. c has the least squared error over the histogram among
// the absmax and the 99.99 and 99.9 percent quantiles of |x|.
float static_act_scale(const InputStatistics& statistics);
// Like static_act_scale above, for a list of values instead of a histogram.
float static_act_scale(std::span<const float> values);

// Rounds the rows of x [T][K] to int8 in place, as `act` does at run time. none: unchanged; row and
// g128: by the absmax of each; tensor: by static_act_scale of all; online: by the absmax of all.
void round_activations(std::span<float> x, std::int64_t columns, ActKind act);

// Output error ||Y - Yq||^2 of a site: Y = X W^T; Yq has weights rounded to their scheme and inputs
// rounded to int8, either with one fixed scale or with a scale for each token. X are the sampled
// tokens, weighted by the number of tokens between two samples, and the token of the largest input.
struct ActErrors {
  double fixed = 0;
  double by_token = 0;
};
ActErrors act_errors(const Site& site, const QuantScheme& weight, float scale);

}  // namespace leq
