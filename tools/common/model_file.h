// A GGUF file where a tool runs a .leq file: converted once, with its own numbers, into a cache.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// --cache, for tools that run a model.
Option conversion_cache_option();

// Calls `body` with options in which -m and -md (where a tool has them) name .leq files: a GGUF
// file is replaced by its conversion. That lies in the cache folder, where the next start finds it,
// or, with --no-cache, in memory alone until the tool ends. Returns what `body` returns. Throws
// Error as import_gguf does, and where the cache cannot be written.
int with_model_files(const Options& options, const std::function<int(const Options&)>& body);

// $XDG_CACHE_HOME/leq, else ~/.cache/leq.
std::filesystem::path conversion_cache();
// The name that the conversion of a GGUF file has in the cache: it tells files, and versions of
// one, apart.
std::string conversion_name(const std::filesystem::path& gguf);

}  // namespace leq
