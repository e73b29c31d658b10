// Without the CPU backend: bench/gpu built on its own.
#include "bench/gpu/cpu_delta.h"

namespace leq::LEQ_GPU::bench {

std::optional<std::vector<float>> cpu_delta_net(const DeltaText&) { return std::nullopt; }

}  // namespace leq::LEQ_GPU::bench
