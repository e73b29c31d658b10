#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mapping_watch.h"
#include "base/system.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::uint64_t kBlock = 2u << 20;  // write block of AtomicFile: a huge page

namespace fs = std::filesystem;

const char* kind_name(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "a device";
  }
}

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return kind_name(fs::file_type::directory);
  if (S_ISFIFO(mode)) return kind_name(fs::file_type::fifo);
  return kind_name(S_ISSOCK(mode) ? fs::file_type::socket : fs::file_type::unknown);
}

// Owns a file descriptor.
class OpenFile {
 public:
  // With O_NONBLOCK, opening a pipe does not block until its other end is opened.
  OpenFile(const fs::path& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    require(value_ >= 0, ErrorKind::io, path.string(), ": cannot open: ", std::strerror(errno));
    if (::fstat(value_, &status_) == 0) return;
    ::close(value_);
    fail(ErrorKind::io, path.string(), ": cannot be looked at");
  }
  ~OpenFile() { ::close(value_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return value_; }
  std::uint64_t size() const { return static_cast<std::uint64_t>(status_.st_size); }
  mode_t mode() const { return status_.st_mode; }

 private:
  int value_;
  struct stat status_ = {};
};

OpenFile open_regular(const fs::path& path) { return {path, O_RDONLY | O_NONBLOCK | O_NOCTTY}; }

void require_regular(const OpenFile& file, const fs::path& path) {
  require(S_ISREG(file.mode()), path.string(), ": expected a regular file, found ",
          kind_name(file.mode()));
}

void require_size(std::uint64_t size, std::uint64_t max_bytes, const fs::path& path) {
  require(size <= max_bytes, path.string(), ": has ", size, " bytes, at most ", max_bytes,
          " are accepted here");
}

// Reads at most `capacity` bytes from the current position of the file.
std::size_t read_some(const OpenFile& file, char* to, std::size_t capacity, const fs::path& path) {
  for (;;) {
    const ssize_t got = ::read(file.get(), to, capacity);
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ErrorKind::io, path.string(), ": cannot read: ", std::strerror(errno));
    return static_cast<std::size_t>(got);
  }
}

std::string read_regular(const OpenFile& file, const fs::path& path, std::uint64_t max_bytes) {
  require_size(file.size(), max_bytes, path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const std::size_t got = read_some(file, text.data() + done, text.size() - done, path);
    if (got == 0) break;
    done += got;
  }
  require(done == text.size(), ErrorKind::io, path.string(), ": read ", done, " of ", text.size(),
          " bytes");
  return text;
}

std::string read_to_end(const OpenFile& file, const fs::path& path, std::uint64_t max_bytes) {
  constexpr std::size_t kStep = 64u << 10;
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    try {
      text.resize(before + kStep);
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::no_memory, path.string(), ": does not fit into memory after ", before,
           " bytes; is it a text that ends?");
    }
    const std::size_t got = read_some(file, text.data() + before, kStep, path);
    text.resize(before + got);
    if (got == 0) return text;
    require(text.size() <= max_bytes, path.string(), ": has more than the ", max_bytes,
            " bytes that are accepted here");
  }
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Part of the name of temporary files next to the target, by which leftover files are recognized.
constexpr std::string_view kTemporary = ".tmp";

// Each call returns a new name, because several threads may write the same target concurrently.
fs::path temporary_name(const fs::path& target) {
  static std::atomic<unsigned> names = 0;
  return target.string() + std::string(kTemporary) + std::to_string(::getpid()) + '-' +
         std::to_string(names.fetch_add(1));
}

// Whether another process with this number may be running.
bool is_another(std::int64_t process) {
  return process != ::getpid() && (::kill(static_cast<pid_t>(process), 0) == 0 || errno != ESRCH);
}

// Removes a temporary file that is not being written: its process has ended or, if the number
// belongs to another container or machine, the file is no longer locked.
void remove_leftover(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  struct stat file = {};
  const bool is_file = ::fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
  if (is_file && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  ::close(descriptor);
}

// The names in the target's folder; empty if the folder can be written but not listed.
std::vector<std::string> names_beside(const fs::path& target) {
  try {
    return file_names(folder_of(target));
  } catch (const Error&) {
    return {};
  }
}

// Removes the temporary files that killed processes have left beside this target.
void remove_leftovers(const fs::path& target) {
  const std::string begin = target.filename().string() + std::string(kTemporary);
  for (const std::string& name : names_beside(target)) {
    if (!name.starts_with(begin)) continue;
    const std::string_view end = std::string_view(name).substr(begin.size());
    const std::size_t dash = end.find('-');
    if (dash == end.npos || parse_int(end.substr(dash + 1)).value_or(-1) < 0) continue;
    const auto process = parse_int(end.substr(0, dash));
    const bool is_number = process && *process > 0 && *process <= std::numeric_limits<pid_t>::max();
    if (is_number && !is_another(*process)) remove_leftover(folder_of(target) / name);
  }
}

void write_all(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset,
               const fs::path& target) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    require(written > 0, ErrorKind::io, target.string(), ": cannot write at offset ", offset, ": ",
            written < 0 ? std::strerror(errno) : "nothing was written",
            "; free some space or choose another folder");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

}  // namespace

bool file_exists(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require(fs::status_known(status), ErrorKind::io, path.string(),
          ": cannot be looked at: ", error.message());
  return fs::exists(status);
}

// The standard library's directory iterator is not used: it terminates the program on bad_alloc.
std::vector<std::string> file_names(const fs::path& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  require(listing != nullptr, ErrorKind::io, folder.string(),
          ": cannot be listed: ", std::strerror(errno));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  require(errno == 0, ErrorKind::io, folder.string(), ": cannot be listed: ", std::strerror(errno));
  std::ranges::sort(names);
  return names;
}

MappedFile::MappedFile(const fs::path& path) : name_(path.string()) {
  const OpenFile file = open_regular(path);
  require_regular(file, path);
  size_ = static_cast<std::size_t>(file.size());
  if (size_ == 0) return;
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  require(mapping != MAP_FAILED, ErrorKind::io, name_, ": cannot map ", size_,
          " bytes: ", std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapping);
  lost_ = name_mapping(data_, size_, name_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unwatch_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      lost_(std::exchange(other.lost_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(lost_, other.lost_);
  return *this;
}

void MappedFile::require_whole() const {
  require(is_whole(), ErrorKind::io, name_,
          ": the file became shorter, or its disk failed, while it was in use");
}

void MappedFile::drop(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before =
      (page - reinterpret_cast<std::uintptr_t>(part.data()) % page) % page;
  if (part.size() < before + page) return;
  // Only whole pages are dropped. The mapping is read-only; the cast is for madvise's signature.
  auto* first = const_cast<std::byte*>(part.data() + before);
  ::madvise(first, (part.size() - before) / page * page, MADV_DONTNEED);
}

std::string read_file(const fs::path& path, std::uint64_t max_bytes) {
  const OpenFile file = open_regular(path);
  require_regular(file, path);
  std::string text = read_regular(file, path, max_bytes);
  refuse_lfs_pointer(std::string_view(text).substr(0, kLfsPointerBytes), path.string());
  return text;
}

void refuse_lfs_pointer(std::string_view beginning, std::string_view source) {
  require(!beginning.starts_with("version https://git-lfs.github.com/spec/"), source,
          ": is a Git LFS pointer, the file itself was not fetched; run `git lfs pull` in its "
          "folder");
}

void refuse_lfs_pointer(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return;  // opening a pipe would block
  std::array<char, kLfsPointerBytes> bytes{};
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), bytes.size());
  refuse_lfs_pointer({bytes.data(), static_cast<std::size_t>(file.gcount())}, path.string());
}

std::string read_text_file(const fs::path& path, std::uint64_t max_bytes) {
  const OpenFile file(path, O_RDONLY | O_NOCTTY);
  require(!S_ISDIR(file.mode()), path.string(), ": expected a text, found a folder");
  if (S_ISREG(file.mode())) return read_regular(file, path, max_bytes);
  return read_to_end(file, path, max_bytes);
}

namespace {

// In a folder with the sticky bit, such as /tmp, only the owner of a file or folder may replace it.
bool may_replace(const fs::path& target, const fs::path& folder) {
  struct stat file = {}, place = {};
  if (::lstat(target.c_str(), &file) != 0 || ::stat(folder.c_str(), &place) != 0) return true;
  const uid_t user = ::geteuid();
  return (place.st_mode & S_ISVTX) == 0 || user == 0 || user == file.st_uid || user == place.st_uid;
}

}  // namespace

void check_output(const fs::path& target) {
  require(!target.empty(), "the name of the file to write is empty");
  const std::string name = target.string();
  require(name != "-", ErrorKind::io,
          "-: files are not written to standard output; name a file (./- is one of this name)");
  require(target.has_filename(), ErrorKind::io, name,
          ": is the name of a folder, expected that of a file to write");
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  require(fs::status_known(status), ErrorKind::io, name, ": cannot write there: ", error.message());
  if (fs::is_symlink(status)) {
    const fs::path end = fs::read_symlink(target, error);
    fail(ErrorKind::io, name, ": is a link to ", end.string(),
         ", expected the name of a new file or of a regular one; name the file itself, or remove "
         "the link");
  }
  require(!fs::exists(status) || fs::is_regular_file(status), ErrorKind::io, name, ": is ",
          kind_name(status.type()), ", expected the name of a file to write");
  const fs::path folder = folder_of(target);
  require(fs::is_directory(folder, error), ErrorKind::io, name,
          ": cannot write there: ", folder.string(), " is no folder; make it first");
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    fail(ErrorKind::io, name, ": cannot write there: ", std::strerror(errno),
         "; choose another folder");
  }
  require(may_replace(target, folder), ErrorKind::io, name, ": belongs to another user, and in ",
          folder.string(), " only the owner can replace a file; choose another name");
}

void require_no_input(const fs::path& target, std::span<const fs::path> inputs) {
  for (const fs::path& input : inputs) {
    std::error_code error;  // a missing file is not equivalent to any other
    require(!fs::equivalent(target, input, error), target.string(), ": is read here",
            target == input ? "" : " as " + input.string(),
            "; choose another name for what is written");
  }
}

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  check_output(target_);
  remove_leftovers(target_);
  descriptor_ = system::open_nameless(folder_of(target_));
  if (descriptor_ < 0) {
    temporary_ = temporary_name(target_);
    descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
  }
  if (descriptor_ < 0) {
    temporary_.clear();
    fail(ErrorKind::io, target_.string(), ": cannot write there: ", std::strerror(errno));
  }
  ::flock(descriptor_, LOCK_EX | LOCK_NB);  // against remove_leftover, if locks are supported
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kBlock - size_ % kBlock));
    pending_.insert(pending_.end(), part.begin(), part.end());
    size_ += part.size();
    bytes = bytes.subspan(part.size());
    if (size_ % kBlock == 0) write_pending();
  }
}

void AtomicFile::skip(std::uint64_t bytes) {
  write_pending();
  size_ += bytes;
}

void AtomicFile::write_pending() {
  write_all(descriptor_, pending_, size_ - pending_.size(), target_);
  pending_.clear();
}

void AtomicFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  ensure(offset <= size_ && bytes.size() <= size_ - offset, target_.string(), ": overwrite at ",
         offset, " of ", bytes.size(), " bytes reaches past ", size_);
  write_pending();
  write_all(descriptor_, bytes, offset, target_);
}

void AtomicFile::commit() {
  const std::string name = target_.string();
  write_pending();
  if (::fsync(descriptor_) != 0) fail(ErrorKind::io, name, ": cannot sync: ", std::strerror(errno));
  check_output(target_);  // the target may have changed since the constructor
  if (temporary_.empty()) {
    if (system::give_name(descriptor_, target_))
      return;  // the usual case: no such file yet, and nothing to clean up
    fs::path named = temporary_name(target_);
    ::unlink(named.c_str());
    if (!system::give_name(descriptor_, named))
      fail(ErrorKind::io, named.string(), ": cannot name the file: ", std::strerror(errno));
    temporary_ = std::move(named);  // a failed copy would leave the file behind
  }
  struct stat before = {};
  if (::stat(target_.c_str(), &before) == 0) ::fchmod(descriptor_, before.st_mode & 0777);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0)
    fail(ErrorKind::io, name, ": cannot rename into place: ", std::strerror(errno));
  temporary_.clear();
}

NamelessFile::NamelessFile(const std::filesystem::path& file)
    : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  require(descriptor_ >= 0, ErrorKind::io, file.string(), ": cannot be opened again");
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

NamelessFile::NamelessFile(std::span<const std::byte> bytes, const char* name)
    : descriptor_(system::open_in_memory(name)) {
  require(descriptor_ >= 0, ErrorKind::io, "a file in memory: ", std::strerror(errno));
  constexpr std::size_t kMaxAtOnce = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const auto written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int reason = errno;
      ::close(descriptor_);
      fail(ErrorKind::no_memory, "a file in memory: ", std::strerror(reason));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::string shown_name(const fs::path& path) {
  std::string name = path.string();
  if (!name.starts_with(kDescriptors)) return name;
  constexpr std::string_view kDeleted = " (deleted)", kInMemory = "/memfd:";
  std::error_code error;
  std::string target = fs::read_symlink(path, error).string();
  if (error || !target.ends_with(kDeleted)) return name;
  target.resize(target.size() - kDeleted.size());
  return target.substr(target.starts_with(kInMemory) ? kInMemory.size() : target.rfind('/') + 1);
}

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

NamelessFile::NamelessFile(NamelessFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

namespace {
namespace fs = std::filesystem;

// Returns " (process 123)", or "" if the number is not valid, as on layered file systems.
std::string owner_of(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return "";
  const std::string name = system::lock_name(status);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::vector<std::string_view> words;  // "1:", "FLOCK", "ADVISORY", "WRITE", pid, file, ...
    for (const auto word : split(line, " ")) {
      if (!word.empty()) words.push_back(word);
    }
    if (words.size() < 6 || words[1] != "FLOCK" || words[5] != name) continue;
    if (parse_int(words[4]).value_or(0) > 0) return " (process " + std::string(words[4]) + ")";
  }
  return "";
}

// Whether `path` still names the open folder, which the holder of the lock may have removed.
bool is_there(int descriptor, const fs::path& path) {
  struct stat mine = {}, named = {};
  return ::fstat(descriptor, &mine) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
}

// The locked folder, or nullopt if it was removed meanwhile.
std::optional<int> try_lock(const fs::path& path) {
  const std::string name = path.string();
  const bool made = ::mkdir(path.c_str(), 0777) == 0;
  if (!made && errno != EEXIST)
    fail(ErrorKind::io, name, ": cannot make this folder: ", std::strerror(errno));
  const auto remove_if_made = [&] {
    const int error = errno;
    if (made) ::rmdir(path.c_str());
    errno = error;
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT) return std::nullopt;
    remove_if_made();
    const bool other = errno == ENOTDIR || errno == ELOOP;
    fail(ErrorKind::io, name,
         other ? ": expected a folder or nothing of this name; move it away"
               : ": cannot open this folder",
         other ? "" : ": " + std::string(std::strerror(errno)));
  }
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    if (is_there(descriptor, path)) return descriptor;
    ::close(descriptor);
    return std::nullopt;
  }
  const int error = errno;
  if (error != EWOULDBLOCK) remove_if_made();
  const std::string owner = owner_of(descriptor);
  ::close(descriptor);
  require(error != EWOULDBLOCK, ErrorKind::io, name, ": another run", owner,
          " writes the same output; wait for it, or choose another name");
  fail(ErrorKind::io, name, ": cannot lock this folder: ", std::strerror(error));
}

}  // namespace

WorkFolder::WorkFolder(fs::path path) : path_(std::move(path)) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (const auto descriptor = try_lock(path_)) {
      descriptor_ = *descriptor;
      return;
    }
  }
  fail(ErrorKind::io, path_.string(), ": vanishes again and again while it is opened");
}

WorkFolder::~WorkFolder() {
  if (descriptor_ < 0) return;
  ::rmdir(path_.c_str());
  ::close(descriptor_);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}

WorkFolder& WorkFolder::operator=(WorkFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::vector<std::string> WorkFolder::names() const { return file_names(path_); }

void WorkFolder::clear() const {
  for (const std::string& name : names()) {
    std::error_code error;
    fs::remove_all(path_ / name, error);
    require(!error, ErrorKind::io, (path_ / name).string(),
            ": cannot be removed: ", error.message());
  }
}

}  // namespace leq
