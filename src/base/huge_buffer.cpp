#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(std::uint64_t bytes, const char* what) : size_(bytes) {
  require(bytes > 0 && bytes <= SIZE_MAX - 2 * kHugePage, what, ": cannot take ", bytes,
          " bytes of memory");
  // One page more than asked for, so that the data can begin on a huge page.
  mapping_bytes_ = static_cast<std::size_t>(bytes) + kHugePage;
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(mapping != MAP_FAILED, what, ": cannot take ", human_bytes(bytes),
          " of memory: ", std::strerror(errno));
  mapping_ = mapping;
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  data_ = static_cast<std::byte*>(mapping) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(mapping_, mapping_bytes_, MADV_HUGEPAGE);  // a hint: small pages work too
}

HugeBuffer::~HugeBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

}  // namespace leq
