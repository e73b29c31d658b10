// Gated DeltaNet by the CPU backend, for programs of builds that have it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/cuda/delta_text.h"

namespace leq::LEQ_GPU::bench {

// Outputs [length][values] of sequence 0; none if this build has no CPU backend.
std::optional<std::vector<float>> cpu_delta_net(const DeltaText& text);

}  // namespace leq::LEQ_GPU::bench
