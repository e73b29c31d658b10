// The .leq file of a GGUF file, with its own numbers: converted once into a cache folder, or into
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/nameless_file.h"

namespace leq {

struct ConversionEvents {
  // Before a conversion into the cache, which the next start finds.
  std::function<void(const std::filesystem::path& output)> begin = [](const auto&) {};
  // Tensors that are done, of how many.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<bool()> stop = [] { return false; };  // true ends it: ErrorKind::interrupted
};

// $XDG_CACHE_HOME/leq, else ~/.cache/leq. Throws Error where neither is set.
std::filesystem::path conversion_cache();
// The name that the conversion of a GGUF file has in a cache: it tells files, and versions of one,
// apart.
std::string conversion_name(const std::filesystem::path& gguf);

// The file in `cache`, made where it is not there, complete or not at all. Throws Error as
// import_gguf does, and where the cache cannot be written.
std::filesystem::path convert_in_cache(const std::filesystem::path& gguf,
                                       const std::filesystem::path& cache,
                                       const ConversionEvents& events);
// A file in memory that is gone with the value.
NamelessFile convert_in_memory(const std::filesystem::path& gguf, const ConversionEvents& events);

}  // namespace leq
