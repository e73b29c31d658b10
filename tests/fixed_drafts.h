// A plan of draft tokens that does not ask what they cost.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/speculation.h"

namespace leq::test {

// So many for each, whether they pay or not, or as many as there can be: drafted where a draft
// model makes any.
inline DraftPlanner fixed_drafts(std::int64_t count) {
  return [count](std::span<const DraftOffer> offers, const StepCosts&, const StepCosts&) {
    std::vector<DraftCount> counts;
    for (const DraftOffer& offer : offers) {
      const bool drafted = offer.draft > 0;
      counts.push_back({std::min(count, drafted ? offer.draft : offer.found), drafted});
    }
    return counts;
  };
}

}  // namespace leq::test
