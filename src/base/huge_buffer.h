// A large block of memory on pages of 2 MB, which DRAM is read through at full speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace leq {

// Move-only owner of zeroed, 64-byte aligned memory. Pages are taken as they are first touched.
class HugeBuffer {
 public:
  HugeBuffer() = default;
  // Throws Error naming `what` and the size where the system has no room for it.
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
