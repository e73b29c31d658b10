#include "hub/arrivals.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace leq {

Arrivals::Arrivals(std::span<const HubFile> files) {
  for (const HubFile& file : files) files_[file.name].bytes = file.bytes;
}
Arrivals::~Arrivals() = default;

std::optional<std::uint64_t> Arrivals::bytes(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name);
  return found == files_.end() ? std::nullopt : std::optional(found->second.bytes);
}

void Arrivals::require_unbroken() const {
  if (failure_) std::rethrow_exception(failure_);
  require(!restarted_, ErrorKind::io, "a download was sent from its beginning again");
}

void Arrivals::read(const std::string& name, std::uint64_t first, std::span<std::byte> out) {
  std::shared_ptr<const Descriptor> file;
  {
    std::unique_lock lock(mutex_);
    File& found = files_.at(name);
    const std::uint64_t last = first + out.size();
    changed_.wait(lock, [&] {
      return failure_ || restarted_ || found.verified || (found.descriptor && found.have >= last);
    });
    require_unbroken();
    require(found.have >= last, ErrorKind::io, name, ": ends at byte ", found.have, ", expected ",
            found.bytes);
    found.used = std::max(found.used, last);
    file = found.descriptor;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(file->get(), out.data(), out.size(), static_cast<off_t>(first));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const std::lock_guard lock(mutex_);
      require_unbroken();
      fail(ErrorKind::io, name, ": cannot read at offset ", first, ": ",
           got < 0 ? std::strerror(errno) : "the file became shorter");
    }
    out = out.subspan(static_cast<std::size_t>(got));
    first += static_cast<std::uint64_t>(got);
  }
}

void Arrivals::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return failure_ || restarted_ ||
           std::ranges::all_of(files_, [](const auto& file) { return file.second.verified; });
  });
  require_unbroken();
}

bool Arrivals::restarted() const {
  const std::lock_guard lock(mutex_);
  return restarted_;
}

void Arrivals::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
}

void Arrivals::open(const std::string& name, const std::filesystem::path& path) {
  auto descriptor = std::make_shared<const Descriptor>(path, O_RDONLY);
  const std::lock_guard lock(mutex_);
  files_.at(name).descriptor = std::move(descriptor);
}

void Arrivals::set_bytes(const std::string& name, std::uint64_t have) {
  const std::lock_guard lock(mutex_);
  require(!given_up_, ErrorKind::interrupted, name, ": the download is not needed any more");
  File& file = files_.at(name);
  restarted_ = restarted_ || have < file.used;
  file.have = have;
  changed_.notify_all();
}

void Arrivals::set_verified(const std::string& name) {
  const std::lock_guard lock(mutex_);
  files_.at(name).verified = true;
  changed_.notify_all();
}

void Arrivals::set_failed(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(why);
  changed_.notify_all();
}

}  // namespace leq
