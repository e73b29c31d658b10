#include "base/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// The name of a file in /proc/locks, such as "08:01:1234".
std::string lock_name(const struct stat& status) {
  char text[64];
  std::snprintf(text, sizeof text, "%02x:%02x:%llu", ::major(status.st_dev), ::minor(status.st_dev),
                static_cast<unsigned long long>(status.st_ino));
  return text;
}

// Returns " (process 123)", or "" if the number is not valid, as on layered file systems.
std::string owner_of(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return "";
  const std::string name = lock_name(status);
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
