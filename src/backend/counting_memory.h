// Memory for plans: it counts the bytes that a device would allocate, but allocates and writes
// nothing.
#pragma once

#include <cstdint>

#include "backend/layout.h"
#include "backend/memory.h"

namespace leq {

class CountingMemory final : public DeviceMemory {
 public:
  // `layout` must outlive this object.
  explicit CountingMemory(const Layout& layout);
  ~CountingMemory() override { drop_scratch(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Counts the weight's bytes and returns the view unchanged.
  WeightView place(const WeightView& weight, std::vector<Buffer>& owner) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, std::span<const std::byte>) override {}
  void read(const std::byte*, std::span<std::byte>) override {}

 private:
  std::byte* take(std::size_t bytes) override;
  void give_back(std::byte*, std::size_t) noexcept override {}

  const Layout& layout_;
  std::uintptr_t next_;  // the next block's address: unique, not backed by memory
};

}  // namespace leq
