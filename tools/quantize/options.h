// The flags of leq-quantize and what they mean together.
#pragma once

#include "recipes/quantize_job.h"
#include "tools/common/options.h"

namespace leq {

const ToolSpec& quantize_tool();

// Throws Error naming the flags where two contradict each other or a value has no meaning.
QuantizeJob quantize_job(const Options& options);

}  // namespace leq
