// The strategies of the bit search. Each measures until it has finished or its budget is spent. The
// result is the best point that the meter measured.
#pragma once

#include "quantize/search/bit_search_knapsack.h"
#include "quantize/search/bit_search_meter.h"

namespace leq {

// Each strategy returns its last estimate of the losses.
LossTable search_grid(SearchMeter& meter);
LossTable search_entropy(SearchMeter& meter);
LossTable search_greedy(SearchMeter& meter);
LossTable search_sens(SearchMeter& meter);

}  // namespace leq
