// The best assignment where losses are additive: exact for small problems, with sizes rounded to a
// fine grid for large ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "quantize/search/bit_search.h"

namespace leq {

// Loss of each unit at each choice; infinite = forbidden.
using LossTable = std::vector<std::array<double, kChoices>>;

// Minimizes sum loss + price * sum bytes under sum bytes <= limit, by merging one unit after
// another into the Pareto front of (bytes, loss); fronts of more than 4096 points keep the best of
// each 1/4096 of the size. An empty assignment where nothing fits.
Assignment solve_knapsack(std::span<const SearchUnit> units, const LossTable& losses, double price,
                          std::uint64_t limit);

}  // namespace leq
