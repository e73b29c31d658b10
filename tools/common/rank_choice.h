// --tp: how many ranks share a model (src/runtime/ranks.h).
#pragma once

#include <cstdint>
#include <string>

#include "tools/common/options.h"

namespace leq {

Option rank_option(const std::string& group);

// Throws Error where the device, or the threads' places, do not go with so many ranks.
void check_ranks(const Options& options, std::int64_t ranks);

// What --tp says; 1 where the tool has no such option. Throws Error as check_ranks does.
int rank_count(const Options& options);

}  // namespace leq
