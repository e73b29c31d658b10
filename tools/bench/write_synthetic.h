// Writes a synthetic model to a file, to test serving and loading.
#pragma once

#include "tools/common/options.h"

namespace leq {

// Executes `--write FILE` with a single -m, and with the tokenizer of `--write-tokenizer` if given.
void write_synthetic(const Options& options);

}  // namespace leq
