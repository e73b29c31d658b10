#include "cuda/host/device_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda/host/device_weights.h"
#include "cuda/layout/weight_bytes.h"

namespace leq::LEQ_GPU {

GpuMemory::GpuMemory(int device, rt::Stream& stream, std::size_t cap)
    : DeviceMemory(kBlockUnit), device_(device), stream_(stream), regions_(device, cap) {}

GpuMemory::~GpuMemory() { drop_scratch(); }

// Upload slots are at the end of the plan, where cache and activations are allocated afterwards.
void GpuMemory::plan(std::size_t weight_bytes, std::size_t other_bytes) {
  finish_placing();
  regions_.plan(weight_bytes + other_bytes);
  const std::size_t slot =
      std::min(Uploader::kSlotBytes, other_bytes / Uploader::kSlots / kBlockUnit * kBlockUnit);
  upload_slots_ = regions_.allocate_last(Uploader::kSlots * slot);
  uploader_.emplace(device_, stream_, upload_slots_, slot);
}

WeightView GpuMemory::place(const WeightView& weight, std::vector<Buffer>& owner) {
  const std::size_t bytes = weight_bytes(weight).bytes;
  owner.emplace_back(*this, bytes);
  if (uploader_) return upload_weight(weight, owner.back().data(), *uploader_, stream_);
  Uploader alone(device_, stream_, nullptr, std::min(Uploader::kSlotBytes, bytes));
  const WeightView there = upload_weight(weight, owner.back().data(), alone, stream_);
  alone.finish();
  return there;
}

UploadReport GpuMemory::finish_placing() {
  if (!uploader_) return {};
  const UploadReport report = uploader_->finish();
  uploader_.reset();
  regions_.release(std::exchange(upload_slots_, nullptr));
  return report;
}

void GpuMemory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  rt::copy_on_device(to, from, bytes, stream_);
}

void GpuMemory::write(std::byte* to, std::span<const std::byte> from) {
  const Pinned there(from.size());
  std::memcpy(there.data(), from.data(), from.size());
  rt::copy_to_device(to, there.data(), from.size(), stream_);
  rt::synchronize(stream_);
}

void GpuMemory::read(const std::byte* from, std::span<std::byte> to) {
  const Pinned there(to.size());
  rt::copy_to_host(there.data(), from, to.size(), stream_);
  rt::synchronize(stream_);
  std::memcpy(to.data(), there.data(), to.size());
}

std::byte* GpuMemory::take(std::size_t bytes) { return regions_.allocate(bytes, stream_); }

void GpuMemory::give_back(std::byte* data, std::size_t) noexcept { regions_.release(data); }

}  // namespace leq::LEQ_GPU
