// Counted host memory of the CPU backend.
#pragma once

#include <cstddef>

namespace leq::cpu {

class Memory {
 public:
  // 64-byte aligned and zeroed; nullptr for 0 bytes. From 2 MB on memory lies on huge pages and is
  // taken from the system as it is first touched. Throws Error with the bytes asked for and held.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data, std::size_t bytes) noexcept;

  // Sums of what was asked for.
  std::size_t allocated() const { return allocated_; }
  std::size_t peak() const { return peak_; }

 private:
  std::size_t allocated_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace leq::cpu
