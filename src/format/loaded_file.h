// The bytes of a model file in memory, either mapped or read into huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/huge_pages.h"
#include "base/thread_pool.h"
#include "format/leq_reader.h"

namespace leq {

// Memory that the process can still allocate without swapping or exceeding its control group's
// limit; nullopt if the system does not report it.
std::optional<std::uint64_t> available_memory();

// Threads for `tasks` copies of parts of a file; one if the system cannot start more.
ThreadPool loading_pool(std::int64_t tasks);
// Throws Error naming `name` if the bytes cannot be locked into memory.
void lock_memory(std::span<const std::byte> bytes, const std::string& name);

class LoadedFile {
 public:
  // Maps `path` or reads it into anonymous huge pages, depending on the options. Automatic: if
  // memory suffices for the file, memory_needed_beside and 1 GB, the file is mapped as a whole if
  // the page cache has it in huge pages, otherwise read. Calls `check` with the mapped bytes first;
  // throws Error naming the path, or what `check` throws.
  LoadedFile(const std::filesystem::path& path, const LoadOptions& options,
             const std::function<void(std::span<const std::byte>)>& check);

  std::span<const std::byte> bytes() const;
  bool mapped() const { return mapping_.has_value(); }
  bool is_whole() const { return !mapping_ || mapping_->is_whole(); }  // see MappedFile

 private:
  std::optional<MappedFile> mapping_;
  HugeBuffer buffer_;
};

}  // namespace leq
