#include "base/huge_buffer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/text.h"

namespace leq {

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
