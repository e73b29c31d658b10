// Device memory: blocks with one owner, counted here and nowhere else, and copies between host and
// device.
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

// What a device with memory of its own has left for a plan.
struct DeviceMemoryInfo {
  std::uint64_t bytes = 0;  // that may be taken
  std::uint64_t total = 0;  // of the device
  std::uint64_t cap = 0;    // 0, or the most that the user lets this process take
};

// Weights that went to a device.
struct UploadReport {
  std::uint64_t bytes = 0;  // as they lie in the file
  double seconds = 0;
};

class DeviceMemory {
 public:
  // Blocks are taken and counted in multiples of `unit` bytes (Layout::block_unit).
  explicit DeviceMemory(std::size_t unit) : unit_(unit) {}
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Bytes asked for through Buffer, now and at most so far: the memory plan's other side.
  std::size_t allocated() const { return allocated_; }
  std::size_t peak() const { return peak_; }
  // Grows with every block allocated or freed: compare it before a stored address is used again.
  std::uint64_t changes() const { return changes_; }

  // One block of at least `bytes` for temporaries of a single operation, shared by all of them; any
  // later call may overwrite or move it. It is freed with the last other block.
  //
  std::span<std::byte> scratch(std::size_t bytes);

  // nullopt: blocks are memory of the host, which no plan divides beforehand.
  virtual std::optional<DeviceMemoryInfo> info() const = 0;
  // Takes a plan's memory at once, before anything is loaded, so that no Buffer of it can fail
  // later: `weight_bytes` for placed weights, which come first, and `other_bytes` for all else.
  // Throws Error with the sizes where there is no room.
  virtual void plan(std::size_t weight_bytes, std::size_t other_bytes) = 0;

  // A weight as this device wants it: a view of memory that joins `owner`, Layout::weight_bytes of
  // it. The CPU borrows the mapped file instead, whose owner must outlive the view.
  virtual WeightView place(const WeightView& weight, std::vector<Buffer>& owner) = 0;
  // Waits for the weights placed so far; what they were since the last call.
  virtual UploadReport finish_placing() = 0;

  // `bytes` within this memory, in order with the operations of its device.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // From and to the host, after all operations so far. Both wait.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> to) = 0;

 protected:
  // To be called by the destructor of every final class, because it frees a block by free_block.
  void drop_scratch() noexcept;

 private:
  friend class Buffer;
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* data, std::size_t bytes) noexcept;
  std::size_t counted(std::size_t bytes) const { return (bytes + unit_ - 1) / unit_ * unit_; }

  // `bytes` is not 0.
  virtual std::byte* allocate_block(std::size_t bytes) = 0;
  virtual void free_block(std::byte* data, std::size_t bytes) noexcept = 0;

  std::size_t unit_;
  std::size_t allocated_ = 0;
  std::size_t peak_ = 0;
  std::uint64_t changes_ = 0;
  Buffer scratch_;
};

}  // namespace leq
