// A synthetic model as a file, to be served or loaded.
#pragma once

#include "tools/common/options.h"

namespace leq {

// `--write FILE`, of the one -m; with the tokenizer of `--write-tokenizer` where that is given.
void write_synthetic(const Options& options);

}  // namespace leq
