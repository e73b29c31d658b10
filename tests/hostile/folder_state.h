// The contents of a folder (names, kinds and data), compared to detect changes by a program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace leq::hostile {

// Maps a path relative to the folder to "file HASH", "folder", "link TARGET" or "other".
using FolderState = std::map<std::string, std::string>;

FolderState state_of(const std::filesystem::path& folder);

struct FolderChanges {
  std::vector<std::string> made, changed, gone;  // paths
};
FolderChanges changes(const FolderState& before, const FolderState& after);

std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::string& bytes);

}  // namespace leq::hostile
