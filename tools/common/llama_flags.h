// Flags of llama.cpp's tools that have no equivalent in leq: those that are ignored, and those that
// are refused with advice.
#pragma once

#include <span>

#include "tools/common/options.h"

namespace leq {

// Returns the flags for tools that run a model. A tool's own options take precedence.
std::span<const ForeignOption> llama_flags();

}  // namespace leq
