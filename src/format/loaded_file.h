// The bytes of a model file in memory: mapped and used in place, or read into huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "base/file.h"
#include "base/huge_buffer.h"
#include "format/leq_reader.h"

namespace leq {

// Memory that a process may still take without swapping or hitting its control group's limit;
// nullopt where the system does not say.
std::optional<std::uint64_t> available_memory();

class LoadedFile {
 public:
  // Maps `path`; reads it into anonymous huge pages where the options say so. Where they leave it
  // open and memory is there for the file, what is needed beside it, and 1 GB, the file is mapped
  // as a whole if the page cache has it in huge pages, else read. Throws Error naming the path, or
  // what `check` throws, which sees the mapped bytes first.
  LoadedFile(const std::filesystem::path& path, const LoadOptions& options,
             const std::function<void(std::span<const std::byte>)>& check);

  std::span<const std::byte> bytes() const;
  bool mapped() const { return mapping_.has_value(); }

 private:
  std::optional<MappedFile> mapping_;
  HugeBuffer buffer_;
};

}  // namespace leq
