// Flags of leq-quantize, and the job that they describe.
#pragma once

#include "quantize/run/quantize_job.h"
#include "tools/common/options.h"

namespace leq {

const ToolSpec& quantize_tool();

// Throws Error naming the flags if two contradict each other or if a value is invalid.
QuantizeJob quantize_job(const Options& options);

}  // namespace leq
