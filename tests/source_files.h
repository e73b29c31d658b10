// Locates and reads the project's own sources, for tests about the sources.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

namespace leq::test {

// Returns paths of files in these folders of the project.
inline std::vector<std::filesystem::path> source_files(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& folder : folders) {
    const fs::path root = fs::path(LEQ_SOURCE_DIR) / folder;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto end = entry.path().extension().string();
      for (const char* known : {".h", ".cpp", ".inc", ".cu", ".cuh"}) {
        if (end == known) files.push_back(fs::relative(entry.path(), LEQ_SOURCE_DIR));
      }
    }
  }
  return files;
}

inline std::string source_text(const std::filesystem::path& relative) {
  return read_file(std::filesystem::path(LEQ_SOURCE_DIR) / relative, 64 << 20);
}

}  // namespace leq::test
