#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

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
  // What lies before and behind the part that is used goes back.
  auto* first = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::size_t before = rounded(address, kHugePageBytes) - address;
  if (before > 0) ::munmap(first, before);
  if (before < kHugePageBytes) ::munmap(first + before + wanted, kHugePageBytes - before);
  ::madvise(first + before, wanted, MADV_HUGEPAGE);  // a hint: small pages work too
  return first + before;
}

void unmap_huge_pages(std::byte* data, std::size_t bytes) noexcept {
  ::munmap(data, rounded(bytes, kSmallPage));
}

}  // namespace leq
