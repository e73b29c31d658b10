// A folder beside an output for intermediate files (OUTPUT.partial), locked by one program at a
// time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq {

class WorkFolder {
 public:
  // Makes the folder where it is not there, and locks it. Throws Error naming the folder, and the
  // process that has it where the system tells, while another one works in it; and where the name
  // is that of something else, or the folder cannot be made.
  explicit WorkFolder(std::filesystem::path path);
  ~WorkFolder();  // unlocks it; removes it where it is empty
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;  // what lies in it, sorted
  void clear() const;  // removes all that lies in it; throws Error naming what cannot be removed

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace leq
