#include "base/nameless_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace leq {

NamelessFile::NamelessFile(const std::filesystem::path& file)
    : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  require(descriptor_ >= 0, ErrorKind::io, file.string(), ": cannot be opened again");
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

NamelessFile::NamelessFile(std::span<const std::byte> bytes)
    : descriptor_(::memfd_create("leq", MFD_CLOEXEC)) {
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

NamelessFile::~NamelessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

NamelessFile::NamelessFile(NamelessFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

}  // namespace leq
