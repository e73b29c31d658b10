#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/system.h"
#include "base/text.h"

namespace leq {

namespace {

constexpr std::size_t kSmallPage = 4096;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::byte* map_huge_pages(std::size_t bytes) noexcept {
  if (bytes > SIZE_MAX - 2 * kHugePageBytes) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::size_t wanted = rounded(bytes, kSmallPage);
  void* mapping = ::mmap(nullptr, wanted + kHugePageBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  // The part of the mapping before and after the aligned range is unmapped.
  auto* first = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::size_t before = rounded(address, kHugePageBytes) - address;
  if (before > 0) ::munmap(first, before);
  if (before < kHugePageBytes) ::munmap(first + before + wanted, kHugePageBytes - before);
  system::ask_for_huge_pages(first + before, wanted);  // only a hint: small pages work too
  return first + before;
}

void unmap_huge_pages(std::byte* data, std::size_t bytes) noexcept {
  ::munmap(data, rounded(bytes, kSmallPage));
}

void ask_for_huge_pages(const std::byte* data, std::size_t bytes) noexcept {
  system::ask_for_huge_pages(const_cast<std::byte*>(data), bytes);
}

void map_ahead(const std::byte* data, std::size_t bytes) noexcept {
  system::map_pages(const_cast<std::byte*>(data), rounded(bytes, kSmallPage));
}

std::size_t bytes_in_huge_pages(const std::byte* data) {
  std::ostringstream address;
  address << std::hex << reinterpret_cast<std::uintptr_t>(data) << '-';
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(address.str())) continue;
  while (std::getline(maps, line)) {
    std::istringstream words(line);
    std::string key, kilobytes;
    words >> key >> kilobytes;
    if (!key.ends_with(':')) break;  // the next mapping's entry begins
    if (key == "FilePmdMapped:")
      return static_cast<std::size_t>(parse_int(kilobytes).value_or(0)) * 1024;
  }
  return 0;
}

HugeBuffer::HugeBuffer(std::uint64_t bytes, const char* what) : size_(bytes) {
  ensure(bytes > 0, what, ": cannot take 0 bytes of memory");
  data_ = map_huge_pages(static_cast<std::size_t>(bytes));
  require(data_ != nullptr, ErrorKind::no_memory, what, ": cannot take ", human_bytes(bytes),
          " of memory: ", std::strerror(errno));
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) unmap_huge_pages(data_, static_cast<std::size_t>(size_));
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace leq
