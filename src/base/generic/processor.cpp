// Processors for which leq has no specialized kernels.
#include <sched.h>

#include "base/cpu_features.h"

namespace leq {

std::vector<Isa> supported_isas() { return {Isa::portable}; }

void pause_briefly() noexcept { ::sched_yield(); }

Fetch best_fetch() { return Fetch::twice; }

}  // namespace leq
