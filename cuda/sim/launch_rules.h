// Validity checks of launches, and the order in which their parts run.
#pragma once

#include <vector>

#include "cuda/sim/emulator.h"

namespace simt {

// Ends the program with a report where hardware would refuse the launch.
void require_launch(const Grid& grid);

// A permutation of 0..n-1; seed 0: none.
std::vector<unsigned> order(unsigned n, std::uint64_t seed);

}  // namespace simt
