#include "cuda/memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace leq::LEQ_GPU {
namespace {

std::byte* take(int device, std::size_t bytes, std::size_t in_use) {
  constexpr std::size_t kImpossible = std::size_t{1} << 48;
  void* data = bytes < kImpossible ? rt::allocate(device, bytes) : nullptr;
  require(data != nullptr, "GPU memory: cannot take ", human_bytes(bytes), " beside the ",
          human_bytes(in_use), " in use; try a smaller context (-c) or KV type (-ctk, -ctv), a",
          " smaller type of weights, or -dev cpu");
  return static_cast<std::byte*>(data);
}

}  // namespace

std::byte* Memory::allocate(std::size_t bytes, rt::Stream& stream) {
  if (bytes == 0) return nullptr;
  std::byte* data = take(device_, bytes, allocated_);
  rt::fill_zero(data, bytes, stream);
  allocated_ += bytes;
  peak_ = std::max(peak_, allocated_);
  return data;
}

void Memory::release(std::byte* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  allocated_ -= bytes;
  rt::release(device_, data);
}

DeviceScratch::DeviceScratch(int device, std::size_t bytes)
    : device_(device), data_(take(device, bytes, 0)) {}

}  // namespace leq::LEQ_GPU
