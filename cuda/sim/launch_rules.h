// Validity checks of launches, and the order in which parts of a launch run.
#pragma once

#include <vector>

#include "cuda/sim/emulator.h"

namespace simt {

// Ends the program with a report if hardware would refuse the launch.
void require_launch(const Grid& grid);

// Returns a permutation of 0 ... n-1; for seed 0 the identity.
std::vector<unsigned> order(unsigned n, std::uint64_t seed);

}  // namespace simt
