// The strategies of the bit search. Each measures until its budget is spent or it has an answer;
// the answer is the best point that the meter saw.
#pragma once

#include "quantize/search/bit_search_knapsack.h"
#include "quantize/search/bit_search_meter.h"

namespace leq {

// Losses that add up to the measured KL of the uniform points: the KL of all units at a choice,
// less that at 8 bits, shared out by the units' proxies (by their sizes where there are none). 0 at
// 8 bits. The uniform points must have been measured.
LossTable losses_from_uniform(SearchMeter& meter);

// KL that the table predicts: that of all units at 8 bits plus the losses.
double predicted_kl(const LossTable& losses, double kl_at_eight, const Assignment& assignment);

// Each returns the losses that it believed in last.
LossTable search_grid(SearchMeter& meter);
LossTable search_entropy(SearchMeter& meter);
LossTable search_greedy(SearchMeter& meter);
LossTable search_sens(SearchMeter& meter);
LossTable search_learned(SearchMeter& meter);

}  // namespace leq
