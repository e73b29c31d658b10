// The flags of llama.cpp's tools that leq's have no option for: which of them do nothing here, and
// what those who type the others can do instead.
#pragma once

#include <span>

#include "tools/common/options.h"

namespace leq {

// For the tools that run a model. A tool's own options come before them.
std::span<const ForeignOption> llama_flags();

}  // namespace leq
