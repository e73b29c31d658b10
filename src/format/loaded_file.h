// The bytes of a model file in memory, either mapped or read into huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

// Bytes [first, last) of a file.
struct FileRange {
  std::size_t first = 0, last = 0;
};

class LoadedFile {
 public:
  // Maps `path`; throws Error naming it.
  explicit LoadedFile(const std::filesystem::path& path);
  // Loads the ascending parts of the file that are used in place: leaves them mapped or reads them
  // into anonymous huge pages, depending on the options. Automatic: a file that is used whole is
  // read if memory suffices for it, memory_needed_beside and 1 GB, and the page cache does not have
  // it in huge pages; others stay mapped. Other bytes become zeros if the file is read, and
  // otherwise leave memory until they are read again. Throws Error naming the path.
  void load(const LoadOptions& options, std::span<const FileRange> used);

  std::span<const std::byte> bytes() const;
  // The part leaves memory; in a mapped file it can be read again.
  void drop(std::span<const std::byte> part) const { MappedFile::drop(part); }
  bool mapped() const { return mapping_.has_value(); }
  bool is_whole() const { return !mapping_ || mapping_->is_whole(); }  // see MappedFile

 private:
  std::optional<MappedFile> mapping_;
  HugeBuffer buffer_;
};

}  // namespace leq
