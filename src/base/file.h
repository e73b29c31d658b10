// Files: read-only mappings, whole-file reads, and atomic writes (all of a file or nothing).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

// Whether a file with this name exists, following links. Throws Error if the system cannot tell.
bool file_exists(const std::filesystem::path& path);

// The sorted names of all entries of a folder. Throws Error naming the folder if it cannot be
// listed.
std::vector<std::string> file_names(const std::filesystem::path& folder);

// A read-only memory mapping of a whole regular file; other kinds of files are refused without
// blocking. Move-only; the bytes are valid as long as the object exists. If the file is truncated
// meanwhile, a program that called watch_mappings (base/mapping_watch.h) ends with an error, or the
// bytes become zeros.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& name() const { return name_; }
  // Whether all bytes that were read so far are the file's.
  bool is_whole() const { return lost_ == nullptr || !*lost_; }
  void require_whole() const;  // throws Error naming the file

  // Advises the kernel that a part will not be read again soon, so that streaming through a file
  // larger than memory does not grow the resident set. Parts are shrunk to whole pages.
  static void drop(std::span<const std::byte> part);

 private:
  std::string name_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  const std::atomic<bool>* lost_ = nullptr;
};

// Reads a whole regular file of at most `max_bytes`; errors name the path and the limit.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);
// Like read_file, for user-supplied texts: also reads pipes, /dev/stdin and terminals to the end.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// Throws Error if `target` cannot be written because it has no name; is a folder, a device, a pipe
// or a link (a new file would replace the link); or its folder is missing or not writable. Called
// before hours of work, to find these errors early.
void check_output(const std::filesystem::path& target);
// Throws Error naming both files if `target` is one of `inputs`, under any name or link.
void require_no_input(const std::filesystem::path& target,
                      std::span<const std::filesystem::path> inputs);

// A file that gets its name only on commit(). It is written in the target's folder without a name
// (O_TMPFILE) if the file system allows that, otherwise as TARGET.tmpPID-N. The destructor removes
// this temporary file; if the process was killed, the next writer of the same target removes it.
// Blocks of 2 MB are written, so that the page cache may use huge pages.
class AtomicFile {
 public:
  // Throws Error under the same conditions as check_output.
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  std::uint64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes);
  // Leaves a hole of this size, which takes no space and reads as zeros.
  void skip(std::uint64_t bytes);
  // Overwrites bytes already appended, such as a preamble whose numbers are known only at the end.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  // Calls fsync, then renames the file to the target. Without commit() no file is left behind.
  void commit();

 private:
  void write_pending();

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty while the file has no name
  int descriptor_ = -1;
  std::uint64_t size_ = 0;          // including the pending bytes
  std::vector<std::byte> pending_;  // the end of the file, not yet written
};

// A file stored by Git LFS is represented by a small pointer file until it is fetched.
inline constexpr std::size_t kLfsPointerBytes = 64;  // enough to recognize a pointer

// Throws Error naming `source` if `beginning` is that of a pointer file. read_file calls it.
void refuse_lfs_pointer(std::string_view beginning, std::string_view source);
// The same of a file; a path that cannot be read as one is no pointer.
void refuse_lfs_pointer(const std::filesystem::path& path);

inline constexpr std::string_view kDescriptors = "/proc/self/fd/";

// An open file without a name, which is deleted when its last descriptor is closed.
class NamelessFile {
 public:
  // Opens a file, then removes its name. Throws Error if it cannot be opened.
  explicit NamelessFile(const std::filesystem::path& file);
  // A file in memory that contains `bytes`. Throws Error if there is not enough memory.
  NamelessFile(std::span<const std::byte> bytes, const char* name);
  ~NamelessFile();
  NamelessFile(NamelessFile&& other) noexcept;
  NamelessFile& operator=(NamelessFile&&) = delete;

  // The path by which this process can open the file.
  std::string path() const { return std::string(kDescriptors) + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// The name of a file for messages: its path, or the former name of a NamelessFile.
std::string shown_name(const std::filesystem::path& path);

// A folder beside an output for intermediate files (OUTPUT.partial), locked by one program at a
// time.
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
