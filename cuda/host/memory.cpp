#include "cuda/host/memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::size_t kImpossible = std::size_t{1} << 48;
constexpr std::size_t kKeptBack = 50;  // 1 / 50 of the free memory is left for libraries

[[noreturn]] void fail_short(std::size_t bytes, std::size_t in_use) {
  fail(ErrorKind::no_memory, "GPU memory: cannot take ", human_bytes(bytes), " beside the ",
       human_bytes(in_use), " in use; try a smaller ", Setting{"context"}, ", ",
       Setting{"key_type"}, " and ", Setting{"value_type"},
       " of fewer bits, a smaller type of weights, or ", Setting{"device"}, " cpu");
}

}  // namespace

DeviceMemoryInfo Regions::info() const {
  const rt::MemoryInfo memory = rt::memory_of(device_);
  const std::size_t kept_back = memory.total_bytes / kKeptBack;
  DeviceMemoryInfo info;
  info.total = memory.total_bytes;
  info.bytes = memory.free_bytes - std::min(memory.free_bytes, kept_back);
  info.cap = cap_;
  if (cap_ > 0) info.bytes = std::min<std::uint64_t>(info.bytes, cap_ - std::min(cap_, taken_));
  return info;
}

std::list<Regions::Region>::iterator Regions::add_region(std::size_t bytes) {
  const std::size_t size = Arena::aligned(bytes);
  rt::RegionOwner memory;
  if (bytes < kImpossible && (cap_ == 0 || size <= cap_ - std::min(cap_, taken_))) {
    memory = rt::take_region(device_, size);
  }
  if (memory == nullptr) fail_short(bytes, taken_);
  taken_ += size;
  return regions_.insert(regions_.end(), {std::move(memory), Arena(size), size});
}

void Regions::plan(std::size_t bytes) {
  std::erase_if(regions_, [&](const Region& region) {
    if (region.arena.empty()) taken_ -= region.bytes;
    return region.arena.empty();
  });
  if (bytes > 0) add_region(bytes);
}

std::byte* Regions::begin(std::list<Region>::iterator region, std::size_t offset,
                          std::size_t bytes) {
  auto* data = static_cast<std::byte*>(rt::begin_block(*region->memory, offset, bytes));
  blocks_[data] = {region, offset, bytes};
  return data;
}

std::byte* Regions::allocate(std::size_t bytes, rt::Stream& stream) {
  if (bytes == 0) return nullptr;
  auto region = regions_.begin();
  std::optional<std::size_t> offset;
  while (region != regions_.end() && !(offset = region->arena.take(bytes))) ++region;
  if (!offset) {
    region = add_region(bytes);
    offset = region->arena.take(bytes);
  }
  std::byte* data = begin(region, *offset, bytes);
  rt::fill_zero(data, bytes, stream);
  return data;
}

std::byte* Regions::allocate_last(std::size_t bytes) {
  if (regions_.empty() || bytes == 0) return nullptr;
  const auto region = std::prev(regions_.end());
  const auto offset = region->arena.take_last(bytes);
  return offset ? begin(region, *offset, bytes) : nullptr;
}

void Regions::release(std::byte* data) noexcept {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  const Block block = found->second;
  blocks_.erase(found);
  rt::end_block(*block.region->memory, data);
  block.region->arena.give_back(block.offset);
  if (!block.region->arena.empty()) return;
  taken_ -= block.region->bytes;
  regions_.erase(block.region);
}

DeviceScratch::DeviceScratch(int device, std::size_t bytes)
    : device_(device), data_(static_cast<std::byte*>(rt::allocate(device, bytes))) {
  if (data_ == nullptr) fail_short(bytes, 0);
}

}  // namespace leq::LEQ_GPU
