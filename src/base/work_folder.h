// A folder beside an output for intermediate files (OUTPUT.partial), locked by one program at a
// time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq {

class WorkFolder {
 public:
  // Creates the folder if it is missing, and locks it. Throws Error naming the folder if another
  // process has locked it (and names that process if the system reports it), if the name belongs to
  // something else, or if the folder cannot be created.
  explicit WorkFolder(std::filesystem::path path);
  ~WorkFolder();  // unlocks it, and removes it if it is empty
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;  // the sorted names of its entries
  void clear() const;  // removes all entries; throws Error naming an entry that cannot be removed

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace leq
