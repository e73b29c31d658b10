// Runs a job of leq-quantize on several ranks, which are threads of this process or processes
// started by mpirun.
#pragma once

#include "quantize/run/quantize_job.h"
#include "tools/common/options.h"

namespace leq {

// Under mpirun all processes except the leader throw FollowerDone after their part. Throws Error
// like run_job, and if --tp does not match the processes.
void run_job_on_ranks(const Options& options, const QuantizeJob& job);

}  // namespace leq
