// The files of an exported folder that are made in memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq {

struct TextFile {
  std::string name;
  std::string text;
};

// Throws Error naming the folder where it is something else, or cannot be made.
void make_export_folder(const std::filesystem::path& folder);
// The file of an earlier export that tells that a folder is complete, where there is one.
void remove_exported(const std::filesystem::path& file);
// In their order, each complete or not at all.
void write_text_files(const std::filesystem::path& folder, const std::vector<TextFile>& files);

}  // namespace leq
