#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace leq::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallPage = 4096;
constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// A mapping that begins on a huge page; what lies before and behind it is given back.
std::byte* map_huge(std::size_t bytes) {
  const std::size_t wanted = rounded(bytes, kSmallPage);
  void* mapping = ::mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::size_t before = rounded(address, kHugePage) - address;
  if (before > 0) ::munmap(first, before);
  if (before < kHugePage) ::munmap(first + before + wanted, kHugePage - before);
  ::madvise(first + before, wanted, MADV_HUGEPAGE);  // a hint: small pages work too
  return first + before;
}

std::byte* take_small(std::size_t bytes) {
  void* data = std::aligned_alloc(kLine, rounded(bytes, kLine));
  if (data != nullptr) std::memset(data, 0, rounded(bytes, kLine));
  return static_cast<std::byte*>(data);
}

}  // namespace

std::byte* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::byte* data = nullptr;
  if (bytes < SIZE_MAX / 2) data = bytes >= kHugePage ? map_huge(bytes) : take_small(bytes);
  require(data != nullptr, "memory: cannot take ", human_bytes(bytes), " beside the ",
          human_bytes(allocated_), " in use; try a smaller context (-c) or KV type (-ctk, -ctv)");
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return data;
}

void Memory::release(std::byte* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  allocated_ -= bytes;
  if (bytes >= kHugePage) {
    ::munmap(data, rounded(bytes, kSmallPage));
  } else {
    std::free(data);
  }
}

}  // namespace leq::cpu
