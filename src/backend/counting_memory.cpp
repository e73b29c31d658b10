#include "backend/counting_memory.h"

namespace leq {
namespace {

constexpr std::uintptr_t kFirstAddress = 4096, kAlignment = 256;

}  // namespace

CountingMemory::CountingMemory(const Layout& layout)
    : DeviceMemory(layout.block_unit()), layout_(layout), next_(kFirstAddress) {}

WeightView CountingMemory::place(const WeightView& weight, std::vector<Buffer>& owner) {
  const std::size_t bytes = layout_.weight_bytes(weight);
  if (bytes > 0) owner.emplace_back(*this, bytes);
  return weight;
}

std::byte* CountingMemory::allocate_block(std::size_t bytes) {
  const std::uintptr_t block = next_;
  next_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<std::byte*>(block);
}

}  // namespace leq
