// Files: read-only mappings, whole-file reads, and writes that appear complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace leq {

// Whether something has this name, links followed. Throws Error where the system does not say.
bool file_exists(const std::filesystem::path& path);

// The names of all that lies in a folder, sorted. Throws Error naming the folder where it cannot be
// listed.
std::vector<std::string> file_names(const std::filesystem::path& folder);

// A read-only memory mapping of a whole regular file; anything else is refused without waiting for
// it. Move-only; the bytes live as long as the object. Where the file becomes shorter meanwhile,
// a program that called watch_mappings (base/mapping_watch.h) ends with an error.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& name() const { return name_; }

  // Tells the kernel that a part will not be read again soon, so that streaming through a file
  // larger than memory does not grow the resident set. Parts are widened inwards to whole pages.
  void drop(std::span<const std::byte> part) const;
  // Asks the kernel to keep the pages in memory; an error where the limit (ulimit -l) forbids it.
  void lock() const;

 private:
  std::string name_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Reads a whole regular file of at most `max_bytes`; errors name the path and the limit.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// The same for texts that people give: pipes, /dev/stdin and terminals too are read to their end.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Throws Error where `target` cannot be written: it has no name, is a folder, a device or a pipe;
// is a link, which a new file would replace and not follow; or its folder is not there or lets
// no one write. What can be told before hours of work.
void check_output(const std::filesystem::path& target);
// Throws Error naming both where `target` is one of `inputs`, by whatever name or link.
void require_no_input(const std::filesystem::path& target,
                      std::span<const std::filesystem::path> inputs);

// A file that appears under its name only by commit(): written beside the target without a name
// (O_TMPFILE) where the file system can, else under a temporary name, TARGET.tmpPID-N, that the
// destructor removes, or, where the process was killed, who writes to that target next.
// It is written in whole blocks of 2 MB, so that the page cache may hold it in huge pages.
class AtomicFile {
 public:
  // Throws Error as check_output does.
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  std::uint64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes);
  // Overwrites bytes already appended (a preamble whose numbers are known last).
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  // fsync, then rename over the target. Nothing is left behind if this is never reached.
  void commit();

 private:
  void write_pending();

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty while the file has no name
  int descriptor_ = -1;
  std::uint64_t size_ = 0;          // with what is pending
  std::vector<std::byte> pending_;  // the end of the file, not written yet
};

}  // namespace leq
