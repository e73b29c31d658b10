// GGUF files for tools that run .leq files: converted once, with the same values, and cached.
#pragma once

#include <functional>

#include "tools/common/options.h"

namespace leq {

// Returns the option --cache, for tools that run a model.
Option conversion_cache_option();

// Calls `body` with options in which -m and -md (if the tool has them) name .leq files: a GGUF file
// is replaced by its conversion (quantize/run/quantize.h) in the cache folder or, with
// --no-cache, in memory until the tool ends. Returns the result of `body`.
int with_model_files(const Options& options, const std::function<int(const Options&)>& body);

}  // namespace leq
