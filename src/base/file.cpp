#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::uint64_t kBlock = 2u << 20;  // of AtomicFile: a huge page

// Opens for reading and returns {descriptor, size}; refuses what is no regular file.
std::pair<int, std::uint64_t> open_regular(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0, ErrorKind::io, path.string(), ": cannot open: ", std::strerror(errno));
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(path.string(), ": expected a regular file, found ",
         S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe");
  }
  return {descriptor, static_cast<std::uint64_t>(status.st_size)};
}

void write_all(int descriptor, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::filesystem::path& target) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    require(written > 0, ErrorKind::io, target.string(), ": cannot write at offset ", offset, ": ",
            written < 0 ? std::strerror(errno) : "nothing was written",
            "; nothing is left behind, free some space or choose another folder");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : name_(path.string()) {
  const auto [descriptor, size] = open_regular(path);
  size_ = static_cast<std::size_t>(size);
  if (size_ > 0) {
    void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    require(mapping != MAP_FAILED, ErrorKind::io, name_, ": cannot map ", size_,
            " bytes: ", std::strerror(error));
    data_ = static_cast<const std::byte*>(mapping);
  } else {
    ::close(descriptor);
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : name_(std::move(other.name_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::drop(std::span<const std::byte> part) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t before =
      (page - reinterpret_cast<std::uintptr_t>(part.data()) % page) % page;
  if (part.size() < before + page) return;
  // Whole pages alone; the mapping is read-only, the call takes no const.
  auto* first = const_cast<std::byte*>(part.data() + before);
  ::madvise(first, (part.size() - before) / page * page, MADV_DONTNEED);
}

void MappedFile::lock() const {
  require(data_ == nullptr || ::mlock(data_, size_) == 0, ErrorKind::no_memory, name_,
          ": cannot lock ", size_, " bytes in memory: ", std::strerror(errno),
          "; raise `ulimit -l` or drop ", Setting{"lock"});
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const auto [descriptor, size] = open_regular(path);
  if (size > max_bytes) {
    ::close(descriptor);
    fail(path.string(), ": has ", size, " bytes, at most ", max_bytes, " are accepted here");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        ::pread(descriptor, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  ::close(descriptor);
  require(done == text.size(), ErrorKind::io, path.string(), ": read ", done, " of ", size,
          " bytes");
  return text;
}

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  const auto folder =
      target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  require(!std::filesystem::is_directory(target_), ErrorKind::io, target_.string(),
          ": is a folder, expected the name of a file to write");
  require(!std::filesystem::exists(target_) || std::filesystem::is_regular_file(target_),
          ErrorKind::io, target_.string(),
          ": is a device or pipe, expected the name of a file to write");
  require(std::filesystem::is_directory(folder), ErrorKind::io, target_.string(),
          ": cannot write there: ", folder.string(), " is no folder; make it first");
  descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
  if (descriptor_ >= 0) return;
  temporary_ = target_;
  temporary_ += ".tmp" + std::to_string(::getpid());
  descriptor_ = ::open(temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
  const int error = errno;
  if (descriptor_ < 0) temporary_.clear();
  require(descriptor_ >= 0, ErrorKind::io, target_.string(),
          ": cannot write there: ", std::strerror(error));
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
  write_pending();
  require(::fsync(descriptor_) == 0, ErrorKind::io, target_.string(),
          ": cannot sync: ", std::strerror(errno));
  if (temporary_.empty()) {
    const std::string source = "/proc/self/fd/" + std::to_string(descriptor_);
    const auto give_name = [&](const std::filesystem::path& name) {
      return ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
    };
    if (give_name(target_)) return;  // the usual case: no such file yet, and nothing to clean up
    auto named = target_;
    named += ".tmp" + std::to_string(::getpid());
    ::unlink(named.c_str());
    require(give_name(named), ErrorKind::io, named.string(),
            ": cannot name the file: ", std::strerror(errno));
    temporary_ = named;
  }
  require(::rename(temporary_.c_str(), target_.c_str()) == 0, ErrorKind::io, target_.string(),
          ": cannot rename into place: ", std::strerror(errno));
  temporary_.clear();
}

}  // namespace leq
