// Plain data only, for files of one instruction set.
#pragma once

#include <cstdint>

namespace leq {

// How sequential reads are prefetched: each cache line twice (into L2, then L1), once, or never,
// where the hardware prefetcher suffices. best_fetch() says which.
enum class Fetch : std::uint8_t { twice, once, never };

}  // namespace leq
