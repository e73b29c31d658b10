// The model files of a folder, with their names for clients.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace leq {

struct ModelFile {
  std::string name;  // the file's name without .leq or .gguf
  std::filesystem::path path;
  std::uint64_t bytes = 0;   // sum over all parts of a GGUF file
  std::int64_t changed = 0;  // modification time in the file system's clock
  std::int64_t created = 0;  // modification time in seconds since 1970
  bool operator==(const ModelFile&) const = default;
};

// The files that end in .leq or .gguf, sorted by name; only the first part of a split GGUF file. If
// a .leq and a GGUF file have the same name, the GGUF file's name keeps its extension. Throws Error
// if the folder cannot be read.
std::vector<ModelFile> models_in(const std::filesystem::path& folder);

}  // namespace leq
