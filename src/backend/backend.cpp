#include "backend/backend.h"

#include <utility>

namespace leq {

Buffer::Buffer(Backend& backend, std::size_t bytes)
    : backend_(&backend), data_(backend.allocate(bytes)), size_(bytes) {}

Buffer::~Buffer() {
  if (data_ != nullptr) backend_->release(data_, size_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : backend_(std::exchange(other.backend_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

RopeTable Backend::allocate_rope(std::span<const float> inv_freq, float attention_factor,
                                 std::int64_t context) {
  return {inv_freq, attention_factor, context, 0,
          Buffer(*this, rope_bytes(std::ssize(inv_freq), context))};
}

}  // namespace leq
