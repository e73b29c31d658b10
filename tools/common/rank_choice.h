// --tp: the number of ranks that share a model (src/runtime/runtime.h).
#pragma once

#include <cstdint>
#include <string>

#include "tools/common/options.h"

namespace leq {

Option rank_option(const std::string& group);

// Throws Error if the device or the thread placement does not support this number of ranks.
void check_ranks(const Options& options, std::int64_t ranks);

// Returns the value of --tp; 1 if the tool has no such option. Throws Error like check_ranks.
int rank_count(const Options& options);

}  // namespace leq
