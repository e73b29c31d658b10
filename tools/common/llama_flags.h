// Flags of llama.cpp's tools without an equivalent in leq: those that are ignored, and advice for
// the others.
#pragma once

#include <span>

#include "tools/common/options.h"

namespace leq {

// For tools that run a model. A tool's own options have precedence.
std::span<const ForeignOption> llama_flags();

}  // namespace leq
