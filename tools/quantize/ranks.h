// A job of leq-quantize by several ranks: threads of this process, or processes that mpirun
// started.
#pragma once

#include "recipes/quantize_job.h"
#include "tools/common/options.h"

namespace leq {

// Under mpirun the processes that do not lead throw FollowerDone once they have done their
// part. Throws Error as run_job does, and where --tp does not fit.
void run_job_on_ranks(const Options& options, const QuantizeJob& job);

}  // namespace leq
