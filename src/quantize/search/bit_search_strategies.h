// The strategies of the bit search. Each measures until it has finished or its budget is spent. The
// result is the best point that the meter measured.
#pragma once

#include "quantize/search/bit_search_knapsack.h"
#include "quantize/search/bit_search_meter.h"

namespace leq {

// Additive losses that match the measured KL of the uniform points. The KL of all units at a
// choice, minus that at 8 bits, is divided among units in proportion to their proxies (without
// proxies: to their sizes). 0 at 8 bits. The uniform points must have been measured.
LossTable losses_from_uniform(SearchMeter& meter);

// KL predicted by the table: the KL of all units at 8 bits plus the losses.
double predicted_kl(const LossTable& losses, double kl_at_eight, const Assignment& assignment);

// Each strategy returns its last estimate of the losses.
LossTable search_grid(SearchMeter& meter);
LossTable search_entropy(SearchMeter& meter);
LossTable search_greedy(SearchMeter& meter);
LossTable search_sens(SearchMeter& meter);
LossTable search_learned(SearchMeter& meter);

}  // namespace leq
