// What leq-bench measures or writes in place of its tests: --fusion, --load, --write.
#pragma once

#include <string>

#include "base/table.h"
#include "format/leq_reader.h"
#include "tools/common/options.h"

namespace leq {

// --fusion: codes written by the norm that computes the values, compared with a separate pass after
// the norm. The first norm of a .leq file over 256 rows, in the input format of its linears: `runs`
// rows of {"rows", "columns", "fused_ms", "apart_ms"}, each of two alternating passes, so that
// other load on the machine affects both. Throws Error if the inputs are no codes of their own
// rows.
Table bench_fusion(const std::string& path, int threads, int runs);

// --load: the time from opening a .leq file until the logits of the first token. Returns one row:
// medians of `runs` loads, each with a fresh backend and a cache of 512 positions, and the largest
// resident size of this process so far. Throws Error like Model.
Row bench_load(const std::string& path, LoadMode mode, int threads, int runs);

// Executes `--write FILE` with a single -m, and with the tokenizer of `--write-tokenizer` if given.
void write_synthetic(const Options& options);

}  // namespace leq
