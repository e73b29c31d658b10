#include "hostile/folder_state.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include <xxhash.h>

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

std::string describe(const fs::directory_entry& entry) {
  if (entry.is_symlink()) return "link " + fs::read_symlink(entry.path()).string();
  if (entry.is_directory()) return "folder";
  if (!entry.is_regular_file()) return "other";
  // Only root can read a file of mode 0; for other users, its size represents the contents.
  if (::access(entry.path().c_str(), R_OK) != 0) {
    return "file of " + std::to_string(entry.file_size()) + " bytes";
  }
  const std::string bytes = read_bytes(entry.path());
  return "file " + std::to_string(XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace

FolderState state_of(const fs::path& folder) {
  FolderState state;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    state[entry.path().lexically_relative(folder).string()] = describe(entry);
  }
  return state;
}

FolderChanges changes(const FolderState& before, const FolderState& after) {
  FolderChanges found;
  for (const auto& [path, what] : after) {
    const auto earlier = before.find(path);
    if (earlier == before.end()) {
      found.made.push_back(path);
    } else if (earlier->second != what) {
      found.changed.push_back(path);
    }
  }
  for (const auto& [path, what] : before) {
    if (!after.contains(path)) found.gone.push_back(path);
  }
  return found;
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (!file) throw std::runtime_error(path.string() + ": cannot write");
}

}  // namespace leq::hostile
