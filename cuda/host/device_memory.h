// Device memory behind the interface of backend/memory.h: blocks of planned regions, and transfers
// of weights and bytes between host and device.
#pragma once

#include <optional>

#include "cuda/host/memory.h"
#include "cuda/host/uploader.h"

namespace leq::LEQ_GPU {

class GpuMemory final : public DeviceMemory {
 public:
  // `cap` has the meaning described in Regions.
  GpuMemory(int device, rt::Stream& stream, std::size_t cap);
  ~GpuMemory() override;

  std::optional<DeviceMemoryInfo> info() const override { return regions_.info(); }
  void plan(std::size_t weight_bytes, std::size_t other_bytes) override;
  WeightView place(const WeightView& weight, std::vector<Buffer>& owner) override;
  UploadReport finish_placing() override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(const std::byte* from, std::span<std::byte> to) override;

 private:
  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte* data, std::size_t bytes) noexcept override;

  int device_;
  rt::Stream& stream_;
  Regions regions_;
  std::optional<Uploader> uploader_;   // set from plan() to finish_placing()
  std::byte* upload_slots_ = nullptr;  // the uploader's slots at the end of the plan
};

}  // namespace leq::LEQ_GPU
