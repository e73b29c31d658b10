#include "backend/memory.h"

#include <algorithm>
#include <utility>

namespace leq {

Buffer::Buffer(DeviceMemory& memory, std::size_t bytes)
    : memory_(&memory), data_(memory.allocate(bytes)), size_(bytes) {}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_->release(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::byte* data = take(bytes);
  allocated_ += counted(bytes);
  peak_ = std::max(peak_, allocated_);
  ++changes_;
  return data;
}

void DeviceMemory::release(std::byte* data, std::size_t bytes) noexcept {
  give_back(data, bytes);
  allocated_ -= counted(bytes);
  ++changes_;
  if (scratch_.size() > 0 && allocated_ == counted(scratch_.size())) drop_scratch();
}

std::span<std::byte> DeviceMemory::scratch(std::size_t bytes) {
  if (bytes > scratch_.size()) {
    drop_scratch();  // freed first: a plan has space for one scratch block
    scratch_ = Buffer(*this, bytes);
  }
  return {scratch_.data(), scratch_.size()};
}

void DeviceMemory::drop_scratch() noexcept { const Buffer gone = std::move(scratch_); }

}  // namespace leq
