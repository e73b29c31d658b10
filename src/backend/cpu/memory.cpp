#include "backend/cpu/memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/text.h"

namespace leq::cpu {
namespace {

constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::byte* take_small(std::size_t bytes) {
  void* data = std::aligned_alloc(kLine, rounded(bytes));
  if (data != nullptr) std::memset(data, 0, rounded(bytes));
  return static_cast<std::byte*>(data);
}

}  // namespace

std::byte* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::byte* data = nullptr;
  if (bytes < SIZE_MAX / 2)
    data = bytes >= kHugePageBytes ? map_huge_pages(bytes) : take_small(bytes);
  require(data != nullptr, ErrorKind::no_memory, "memory: cannot take ", human_bytes(bytes),
          " beside the ", human_bytes(allocated_), " in use; try a smaller ", Setting{"context"},
          ", or ", Setting{"key_type"}, " and ", Setting{"value_type"}, " of fewer bits");
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return data;
}

void Memory::release(std::byte* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  allocated_ -= bytes;
  if (bytes >= kHugePageBytes) {
    unmap_huge_pages(data, bytes);
  } else {
    std::free(data);
  }
}

}  // namespace leq::cpu
