// Runs leq-quantize on several ranks, which are threads of this process or processes
// started by mpirun.
#pragma once

#include "tools/quantize/options.h"

namespace leq {

// Under mpirun all processes except the leader throw FollowerDone after their part. Throws Error
// like quantize_checkpoint, and if --tp does not match the processes.
void quantize_on_ranks(const Options& options, const QuantizeCommand& command);

}  // namespace leq
