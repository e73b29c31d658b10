// Settings of the environment, and locks.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hub/hub.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTokenBytes = 64u << 10;

// An empty variable counts as absent.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_true(std::string_view text) {
  const std::string word = ascii_lower(text);
  return word == "1" || word == "on" || word == "yes" || word == "true";
}

fs::path expanded(const std::string& path) {
  const std::string home = variable("HOME");
  return path.starts_with("~/") && !home.empty() ? fs::path(home) / path.substr(2) : fs::path(path);
}

fs::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expanded(home);
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return expanded(cache) / "huggingface";
  }
  const std::string home = variable("HOME");
  require(!home.empty(), ErrorKind::io,
          "downloads are kept in a cache folder: set HF_HOME or HOME to a folder");
  return fs::path(home) / ".cache" / "huggingface";
}

std::string hub_token(const fs::path& home) {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const std::string token(trim(variable(name))); !token.empty()) return token;
  }
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return "";
  const std::string named = variable("HF_TOKEN_PATH");
  const fs::path file = named.empty() ? home / "token" : expanded(named);
  return file_exists(file) ? std::string(trim(read_file(file, kMaxTokenBytes))) : "";
}

}  // namespace

HubSettings hub_settings() {
  HubSettings settings;
  settings.endpoint = variable("HF_ENDPOINT");
  if (settings.endpoint.empty()) settings.endpoint = "https://huggingface.co";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  require(settings.endpoint.starts_with("https://") || settings.endpoint.starts_with("http://"),
          "HF_ENDPOINT ", printable(settings.endpoint),
          ": expected a URL as https://huggingface.co");
  const fs::path home = hub_home();
  settings.token = hub_token(home);
  settings.cache = home / "hub";
  for (const char* name : {"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE"}) {
    if (const std::string cache = variable(name); !cache.empty()) settings.cache = expanded(cache);
  }
  settings.offline =
      is_true(variable("HF_HUB_OFFLINE")) || is_true(variable("TRANSFORMERS_OFFLINE"));
  return settings;
}

FileLock::FileLock(const fs::path& path, const std::function<void()>& waiting) {
  fs::create_directories(path.parent_path());
  for (bool told = false;;) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    require(descriptor_ >= 0, ErrorKind::io, path.string(), ": ", std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (!told) waiting();
      told = true;
      while (::flock(descriptor_, LOCK_EX) != 0) {
        require(errno == EINTR, ErrorKind::io, path.string(), ": ", std::strerror(errno));
      }
    }
    // The process that held the lock may have removed the file.
    struct stat locked = {}, named = {};
    if (::fstat(descriptor_, &locked) == 0 && ::stat(path.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      return;
    }
    ::close(descriptor_);
  }
}

FileLock::~FileLock() { ::close(descriptor_); }

}  // namespace leq
