#include "backend/cpu/memory.h"

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

WeightView Memory::place(const WeightView& weight, std::vector<Buffer>&) {
  for (const PagesOfNode& pages : places_.of(weight)) move_pages(pages);
  return weight;
}

std::byte* Memory::take(std::size_t bytes) {
  std::byte* data = nullptr;
  if (bytes < SIZE_MAX / 2)
    data = bytes >= kHugePageBytes ? map_huge_pages(bytes) : take_small(bytes);
  require(data != nullptr, ErrorKind::no_memory, "memory: cannot take ", human_bytes(bytes),
          " beside the ", human_bytes(allocated()), " in use; try a smaller ", Setting{"context"},
          ", or ", Setting{"key_type"}, " and ", Setting{"value_type"}, " of fewer bits");
  return data;
}

void Memory::give_back(std::byte* data, std::size_t bytes) noexcept {
  if (bytes >= kHugePageBytes) {
    unmap_huge_pages(data, bytes);
  } else {
    std::free(data);
  }
}

void Memory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // the pointers of empty buffers may be null
}

void Memory::write(std::byte* to, std::span<const std::byte> from) {
  copy(to, from.data(), from.size());
}

void Memory::read(const std::byte* from, std::span<std::byte> to) {
  copy(to.data(), from, to.size());
}

}  // namespace leq::cpu
