// A large block of memory in pages of 2 MB, with which DRAM is read at full bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leq {

// Move-only owner of zeroed, 64-byte aligned memory. A page is allocated when first touched.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Throws Error naming `what` and the size if the system cannot reserve the memory.
  HugeBuffer(std::uint64_t bytes, const char* what);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<std::size_t>(size_)}; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace leq
