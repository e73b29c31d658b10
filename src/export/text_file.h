// Text files of an exported folder, created in memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq {

struct TextFile {
  std::string name;
  std::string text;
};

// Throws Error naming the folder if it is another kind of file or cannot be created.
void make_export_folder(const std::filesystem::path& folder);
// Removes an earlier export's last file, if it exists: that file marks a folder as complete.
void remove_exported(const std::filesystem::path& file);
// Writes the files in order, each atomically.
void write_text_files(const std::filesystem::path& folder, const std::vector<TextFile>& files);

}  // namespace leq
