#include "quantize/calibration/hidden_states.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace leq {
namespace {

// Reads or writes one window of the file, with as many system calls as necessary.
template <typename Bytes, typename Transfer>
void transfer_all(const std::filesystem::path& file, Bytes bytes, std::int64_t window,
                  const char* what, const Transfer& transfer) {
  auto offset = static_cast<off_t>(window) * static_cast<off_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t done = transfer(bytes, offset);
    if (done < 0 && errno == EINTR) continue;
    require(done > 0, ErrorKind::io, file.string(), ": cannot ", what, ": ", std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

}  // namespace

HiddenStates::HiddenStates(std::int64_t windows, std::int64_t numbers,
                           const std::filesystem::path& file)
    : windows_(windows), numbers_(numbers), file_(file) {
  if (file.empty()) {
    memory_.resize(static_cast<std::size_t>(windows * numbers));
    return;
  }
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(descriptor_ >= 0, ErrorKind::io, file.string(),
          ": cannot be made: ", std::strerror(errno));
  ::unlink(file.c_str());
  const auto bytes = static_cast<off_t>(windows * numbers) * static_cast<off_t>(sizeof(float));
  const int error = ::posix_fallocate(descriptor_, 0, bytes);
  if (error == 0) return;
  ::close(descriptor_);
  fail(ErrorKind::io, file.string(), ": no room for the ", bytes,
       " bytes of the hidden states: ", std::strerror(error), "; raise ", Setting{"max_ram"},
       " or take fewer ", Setting{"samples"});
}

HiddenStates::~HiddenStates() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void HiddenStates::read(std::int64_t window, std::span<float> out) const {
  ensure(std::ssize(out) == numbers_, "hidden states: room for ", out.size(), " numbers of ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy_n(memory_.begin() + window * numbers_, numbers_, out.begin());
    return;
  }
  transfer_all(file_, std::as_writable_bytes(out), window, "read", [&](auto part, off_t offset) {
    return ::pread(descriptor_, part.data(), part.size(), offset);
  });
}

void HiddenStates::write(std::int64_t window, std::span<const float> values) {
  ensure(std::ssize(values) == numbers_, "hidden states: ", values.size(), " numbers, expected ",
         numbers_);
  if (descriptor_ < 0) {
    std::copy(values.begin(), values.end(), memory_.begin() + window * numbers_);
    return;
  }
  transfer_all(file_, std::as_bytes(values), window, "write", [&](auto part, off_t offset) {
    return ::pwrite(descriptor_, part.data(), part.size(), offset);
  });
}

}  // namespace leq
