// An open file without a name, which is gone with its last user.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace leq {

class NamelessFile {
 public:
  // Takes the name from a file. Throws Error where it cannot be opened.
  explicit NamelessFile(const std::filesystem::path& file);
  // A file in memory that holds `bytes`. Throws Error where memory is short.
  explicit NamelessFile(std::span<const std::byte> bytes);
  ~NamelessFile();
  NamelessFile(NamelessFile&& other) noexcept;
  NamelessFile& operator=(NamelessFile&&) = delete;

  // Under which this process opens it.
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace leq
