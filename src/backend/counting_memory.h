// Memory for plans: it counts what a device would allocate; nothing is allocated or
// written.
#pragma once

#include <cstdint>

#include "backend/layout.h"
#include "backend/memory.h"

namespace leq {

class CountingMemory final : public DeviceMemory {
 public:
  // `layout` must outlive the memory.
  explicit CountingMemory(const Layout& layout);
  ~CountingMemory() override { drop_scratch(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Counts, and hands back the view as it is.
  WeightView place(const WeightView& weight, std::vector<Buffer>& owner) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, std::span<const std::byte>) override {}
  void read(const std::byte*, std::span<std::byte>) override {}

 private:
  std::byte* allocate_block(std::size_t bytes) override;
  void free_block(std::byte*, std::size_t) noexcept override {}

  const Layout& layout_;
  std::uintptr_t next_;  // an address of its own for each block, at which nothing lies
};

}  // namespace leq
