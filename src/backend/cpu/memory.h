// Host memory of the CPU backend.
#pragma once

#include <utility>

#include "backend/cpu/weight_places.h"
#include "backend/memory.h"

namespace leq::cpu {

class Memory final : public DeviceMemory {
 public:
  explicit Memory(WeightPlaces places) : DeviceMemory(1), places_(std::move(places)) {}
  ~Memory() override { drop_scratch(); }

  // Memory nodes that weights are spread over; 0 where they lie as they were loaded.
  int nodes() const { return places_.node_count(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Weights are used where they lie; on several nodes their pages move first.
  WeightView place(const WeightView& weight, std::vector<Buffer>&) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(const std::byte* from, std::span<std::byte> to) override;

 private:
  // 64-byte aligned and zeroed. From 2 MB on memory lies on huge pages and is taken from the system
  // as it is first touched.
  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte* data, std::size_t bytes) noexcept override;

  WeightPlaces places_;
};

}  // namespace leq::cpu
