// The flags of leq-quantize and what they mean together.
#pragma once

#include "convert/quantize_checkpoint.h"
#include "tools/common/options.h"

namespace leq {

const ToolSpec& quantize_tool();

// Throws Error naming the flags where two contradict each other or a value has no meaning.
CheckpointOptions checkpoint_options(const Options& options);

}  // namespace leq
