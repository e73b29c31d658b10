// The bytes of a model file in memory: mapped and used in place, or read into huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "base/file.h"
#include "format/leq_reader.h"

namespace leq {

// Memory that a process may still take without swapping or hitting its control group's limit;
// nullopt where the system does not say.
std::optional<std::uint64_t> available_memory();

class LoadedFile {
 public:
  // Maps `path`; reads it into anonymous huge pages where the options say so, or where they leave
  // it open and memory is there for the file, what is needed beside it, and 1 GB. Throws Error
  // naming the path.
  LoadedFile(const std::filesystem::path& path, const LoadOptions& options);
  ~LoadedFile();
  LoadedFile(const LoadedFile&) = delete;
  LoadedFile& operator=(const LoadedFile&) = delete;

  std::span<const std::byte> bytes() const;
  bool mapped() const { return mapping_.has_value(); }

 private:
  void read_whole(const std::filesystem::path& path, std::size_t size);

  std::optional<MappedFile> mapping_;
  std::byte* buffer_ = nullptr;  // from mmap, size_ bytes rounded up to huge pages
  std::size_t size_ = 0;
  std::size_t buffer_bytes_ = 0;
};

}  // namespace leq
