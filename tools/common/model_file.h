// A GGUF file where a tool runs a .leq file: converted once, with its own numbers, into a cache.
#pragma once

#include <functional>

#include "tools/common/options.h"

namespace leq {

// --cache, for tools that run a model.
Option conversion_cache_option();

// Calls `body` with options in which -m and -md (where a tool has them) name .leq files: a GGUF
// file is replaced by its conversion (convert/gguf_conversion.h). That lies in the cache folder,
// or, with --no-cache, in memory alone until the tool ends. Returns what `body` returns.
int with_model_files(const Options& options, const std::function<int(const Options&)>& body);

}  // namespace leq
