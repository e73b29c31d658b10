// Measures the time from opening a .leq file until the logits of the first token, and the memory
// used.
#pragma once

#include <string>

#include "base/table.h"
#include "format/leq_reader.h"

namespace leq {

// Returns one row: medians of `runs` loads, each with a fresh backend and a cache of 512 positions,
// and the largest resident size of this process so far. Throws Error like Model.
Row bench_load(const std::string& path, LoadMode mode, int threads, int runs);

}  // namespace leq
