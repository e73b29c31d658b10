// Finds the best assignment if losses are additive. Exact for small problems; for large ones, sizes
// are rounded to a fine grid.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "quantize/search/bit_search.h"

namespace leq {

// Loss of each unit at each choice; an infinite loss forbids the choice.
using LossTable = std::vector<std::array<double, kChoices>>;

// Minimizes sum loss + price * sum bytes under sum bytes <= limit, by merging one unit after
// another into the Pareto front of (bytes, loss). A front of more than 4096 points is reduced to
// the best point in each 1/4096 of the size. Returns an empty assignment if nothing fits.
Assignment solve_knapsack(std::span<const SearchUnit> units, const LossTable& losses, double price,
                          std::uint64_t limit);

}  // namespace leq
