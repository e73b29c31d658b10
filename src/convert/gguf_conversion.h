// Converts a GGUF file to .leq without changing its quantized values: into a cache folder, where
// the result is reused, or into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file.h"

namespace leq {

struct ConversionEvents {
  // Called before a conversion into the cache, but not if the cache already has the file.
  std::function<void(const std::filesystem::path& output)> begin = [](const auto&) {};
  // Called when `done` of `total` tensors have been converted.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<bool()> stop = [] { return false; };  // true aborts with ErrorKind::interrupted
};

// $XDG_CACHE_HOME/leq, otherwise ~/.cache/leq. Throws Error if neither variable is set.
std::filesystem::path conversion_cache();
// The file name of a GGUF file's conversion in a cache, different for each file, for each version
// of it, and for each change of how leq converts.
std::string conversion_name(const std::filesystem::path& gguf);

// The path of the conversion in `cache`; if it is not cached yet, it is created atomically. Throws
// Error like import_gguf, and if the cache cannot be written.
std::filesystem::path convert_in_cache(const std::filesystem::path& gguf,
                                       const std::filesystem::path& cache,
                                       const ConversionEvents& events);
// Converts into an unnamed in-memory file, which is freed with the returned object.
NamelessFile convert_in_memory(const std::filesystem::path& gguf, const ConversionEvents& events);

}  // namespace leq
