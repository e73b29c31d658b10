// This header has only plain data, because files compiled for one instruction set include it.
#pragma once

#include <cstdint>

namespace leq {

// How sequential reads are prefetched: each cache line twice (first into L2, then into L1), once,
// or never if the hardware prefetcher suffices. best_fetch() chooses.
enum class Fetch : std::uint8_t { twice, once, never };

}  // namespace leq
