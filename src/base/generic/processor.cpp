// Processors without kernels of their own.
#include <sched.h>

#include "base/cpu_features.h"

namespace leq {

std::vector<Isa> supported_isas() { return {Isa::portable}; }

void pause_briefly() noexcept { ::sched_yield(); }

bool reads_ahead() { return false; }

}  // namespace leq
