// Device memory that is counted, and pinned host memory with an owner.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/rt.h"

namespace leq::LEQ_GPU {

// What a backend hands out, and the most it had out at once.
class Memory {
 public:
  explicit Memory(int device) : device_(device) {}
  // Zeroed in order with the stream's work. Null for 0 bytes; throws Error naming both sizes where
  // the device has no room.
  std::byte* allocate(std::size_t bytes, rt::Stream& stream);
  void release(std::byte* data, std::size_t bytes) noexcept;
  std::size_t allocated() const { return allocated_; }
  std::size_t peak() const { return peak_; }

 private:
  int device_;
  std::size_t allocated_ = 0, peak_ = 0;
};

class Pinned {
 public:
  Pinned() = default;
  explicit Pinned(std::size_t bytes)
      : data_(static_cast<std::byte*>(rt::allocate_pinned(bytes))), size_(bytes) {}
  ~Pinned() {
    if (data_ != nullptr) rt::release_pinned(data_);
  }
  Pinned(Pinned&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pinned& operator=(Pinned&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Scratch on the device with an owner, not counted: staging only.
class DeviceScratch {
 public:
  DeviceScratch(int device, std::size_t bytes);
  ~DeviceScratch() { rt::release(device_, data_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  std::byte* data() const { return data_; }

 private:
  int device_;
  std::byte* data_;
};

}  // namespace leq::LEQ_GPU
