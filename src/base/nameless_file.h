// An open file without a name, which is deleted when its last descriptor is closed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace leq {

class NamelessFile {
 public:
  // Opens a file, then removes its name. Throws Error if it cannot be opened.
  explicit NamelessFile(const std::filesystem::path& file);
  // A file in memory that contains `bytes`. Throws Error if there is not enough memory.
  explicit NamelessFile(std::span<const std::byte> bytes);
  ~NamelessFile();
  NamelessFile(NamelessFile&& other) noexcept;
  NamelessFile& operator=(NamelessFile&&) = delete;

  // The path by which this process can open the file.
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace leq
