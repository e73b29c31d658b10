// Plain data only, for files of one instruction set.
#pragma once

#include <cstdint>

namespace leq {

// How often a program does well to fetch each line of what it reads in a row: into one cache after
// another, once, or never, because the processor brings it by itself. best_fetch() says which.
enum class Fetch : std::uint8_t { twice, once, never };

}  // namespace leq
