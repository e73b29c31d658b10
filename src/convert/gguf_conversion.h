// Converts a GGUF file to .leq, keeping its quantized values: once into a cache folder, or into
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/nameless_file.h"

namespace leq {

struct ConversionEvents {
  // Called before a conversion into the cache; not called where the cache has the file already.
  std::function<void(const std::filesystem::path& output)> begin = [](const auto&) {};
  // Number of tensors done, and of tensors in total.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<bool()> stop = [] { return false; };  // true aborts: ErrorKind::interrupted
};

// $XDG_CACHE_HOME/leq, else ~/.cache/leq. Throws Error where neither is set.
std::filesystem::path conversion_cache();
// The file name of a GGUF file's conversion in a cache, distinct for each file, each version of it,
// and each way of converting.
std::string conversion_name(const std::filesystem::path& gguf);

// The path of the conversion in `cache`; converts, atomically, where it is not cached yet. Throws
// Error as import_gguf does, and where the cache cannot be written.
std::filesystem::path convert_in_cache(const std::filesystem::path& gguf,
                                       const std::filesystem::path& cache,
                                       const ConversionEvents& events);
// Converts into an unnamed in-memory file, which is freed with the returned value.
NamelessFile convert_in_memory(const std::filesystem::path& gguf, const ConversionEvents& events);

}  // namespace leq
