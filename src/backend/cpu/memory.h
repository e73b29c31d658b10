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

  // The number of memory nodes over which weights are distributed; 0: weights are not moved.
  int nodes() const { return places_.node_count(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Weights are used where they were loaded; with several nodes their pages are moved first.
  WeightView place(const WeightView& weight, std::vector<Buffer>&) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(const std::byte* from, std::span<std::byte> to) override;

 private:
  // Allocates 64-byte aligned, zeroed memory. Blocks of at least 2 MB use huge pages, which the
  // operating system maps on first touch.
  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte* data, std::size_t bytes) noexcept override;

  WeightPlaces places_;
};

}  // namespace leq::cpu
