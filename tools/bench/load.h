// Measures the time from opening a .leq file to the logits of the first token, and the memory it
// takes.
#pragma once

#include <string>

#include "format/leq_reader.h"
#include "report/table.h"

namespace leq {

// One row: medians of `runs` loads with a fresh backend and a cache of 512 positions each, and the
// largest resident size of this process so far. Throws Error as Model does.
Row bench_load(const std::string& path, LoadMode mode, int threads, int runs);

}  // namespace leq
