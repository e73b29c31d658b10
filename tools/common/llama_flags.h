// Flags of llama.cpp and of Ollama that have no equivalent in leq: those that are ignored, and
// those that are refused with advice.
#pragma once

#include <span>

#include "tools/common/options.h"

namespace leq {

// Returns the flags for tools that run a model. A tool's own options take precedence.
std::span<const ForeignOption> llama_flags();
// Flags of llama.cpp's other tools and of Ollama that all tools refuse with advice, unless they are
// options or in the tool's own list.
std::span<const ForeignOption> other_programs_flags();

}  // namespace leq
