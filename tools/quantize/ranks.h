// Runs a job of leq-quantize on several ranks: threads of this process, or processes started by
// mpirun.
#pragma once

#include "recipes/quantize_job.h"
#include "tools/common/options.h"

namespace leq {

// Under mpirun all processes except the leader throw FollowerDone at the end of their part. Throws
// Error as run_job does, and where --tp does not fit.
void run_job_on_ranks(const Options& options, const QuantizeJob& job);

}  // namespace leq
