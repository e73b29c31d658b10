// Writes a synthetic model to a file, for serving or loading tests.
#pragma once

#include "tools/common/options.h"

namespace leq {

// `--write FILE` with a single -m; with the tokenizer of `--write-tokenizer` if given.
void write_synthetic(const Options& options);

}  // namespace leq
