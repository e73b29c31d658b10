// Device memory: blocks with one owner each, which are counted only here, and copies between host
// and device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tensor/weight_layout.h"

namespace leq {

class DeviceMemory;

// A block of device memory with one owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DeviceMemory& memory,
         std::size_t bytes);  // 64-byte aligned, zeroed; throws Error with both sizes
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  DeviceMemory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The memory that a device (with memory of its own) has left for a plan.
struct DeviceMemoryInfo {
  std::uint64_t bytes = 0;  // bytes that may be allocated
  std::uint64_t total = 0;  // bytes of the device
  std::uint64_t cap = 0;    // the user's limit for this process; 0: none
};

// Statistics of weights that were copied to a device.
struct UploadReport {
  std::uint64_t bytes = 0;  // size of the weights in the file
  double seconds = 0;
};

class DeviceMemory {
 public:
  // Blocks are allocated and counted in multiples of `unit` bytes (Layout::block_unit).
  explicit DeviceMemory(std::size_t unit) : unit_(unit) {}
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Bytes allocated through Buffer, now and at their maximum; a memory plan predicts them.
  std::size_t allocated() const { return allocated_; }
  std::size_t peak() const { return peak_; }
  // Increases whenever a block is allocated or freed; a stored address is valid while it is equal.
  std::uint64_t changes() const { return changes_; }

  // One block of at least `bytes` for temporaries of a single operation. All operations share the
  // block, so that any later call may overwrite or move it. The block is freed when no other block
  // remains allocated.
  std::span<std::byte> scratch(std::size_t bytes);

  // Returns nullopt if blocks are host memory, which no plan reserves in advance.
  virtual std::optional<DeviceMemoryInfo> info() const = 0;
  // Reserves a plan's memory before anything is loaded, so that no Buffer of the plan can fail
  // later: `weight_bytes` for placed weights, which are allocated first, `other_bytes` for the
  // rest. Throws Error with the sizes if memory does not suffice.
  virtual void plan(std::size_t weight_bytes, std::size_t other_bytes) = 0;

  // Copies a weight to this device: the view's memory, Layout::weight_bytes of it, is appended to
  // `owner`. The CPU uses the mapped file instead; the file's owner must outlive the view.
  virtual WeightView place(const WeightView& weight, std::vector<Buffer>& owner) = 0;
  // Waits for the weights placed so far; returns statistics of those since the last call.
  virtual UploadReport finish_placing() = 0;

  // Copies `bytes` within this memory, in order with the operations of the device.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Copies from and to the host, after all operations so far. Both functions wait.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> to) = 0;

 protected:
  // Must be called by the destructor of every final class, because it calls the virtual give_back.
  void drop_scratch() noexcept;

 private:
  friend class Buffer;
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data, std::size_t bytes) noexcept;
  std::size_t counted(std::size_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

  // `bytes` is never 0.
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void give_back(std::byte* data, std::size_t bytes) noexcept = 0;

  std::size_t unit_;
  std::size_t allocated_ = 0;
  std::size_t peak_ = 0;
  std::uint64_t changes_ = 0;
  Buffer scratch_;
};

}  // namespace leq
