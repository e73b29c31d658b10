// The model files of a folder, by the names that clients ask for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace leq {

struct ModelFile {
  std::string name;  // the file's without .leq or .gguf
  std::filesystem::path path;
  std::uint64_t bytes = 0;   // of all parts of a GGUF file
  std::int64_t changed = 0;  // when it was written, in the file system's clock
  std::int64_t created = 0;  // the same in seconds since 1970
  bool operator==(const ModelFile&) const = default;
};

// Files that end in .leq or .gguf, by name; of a GGUF file in parts, the first. Where a .leq and a
// GGUF file have one name, the second keeps its ending. Throws Error where the folder cannot be
// read.
std::vector<ModelFile> models_in(const std::filesystem::path& folder);

}  // namespace leq
