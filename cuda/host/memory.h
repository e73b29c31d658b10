// The backend's memory on a device: the memory of a plan, which is allocated at once and divided
// into blocks; scratch; and pinned host memory. Each allocation has one owner.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>

#include "backend/memory.h"
#include "cuda/host/arena.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

// Ranges of device memory, each of which is split into blocks.
class Regions {
 public:
  // `cap` limits the device memory that is allocated; 0 means the free memory less 2 %.
  Regions(int device, std::size_t cap) : device_(device), cap_(cap) {}

  DeviceMemoryInfo info() const;
  // Allocates `bytes` for later blocks. Throws Error naming both sizes if the device has too little
  // memory.
  void plan(std::size_t bytes);
  // Returns a block that is zeroed in stream order. Blocks that do not fit in a plan are allocated
  // separately. Returns null for 0 bytes; throws as plan() does.
  std::byte* allocate(std::size_t bytes, rt::Stream& stream);
  // Returns a block at the end of the last plan, not zeroed; null if it does not fit.
  std::byte* allocate_last(std::size_t bytes);
  void release(std::byte* data) noexcept;

 private:
  struct Region {
    rt::RegionOwner memory;
    Arena arena;
    std::size_t bytes;
  };
  struct Block {
    std::list<Region>::iterator region;
    std::size_t offset, bytes;
  };
  std::list<Region>::iterator add_region(std::size_t bytes);
  std::byte* begin(std::list<Region>::iterator region, std::size_t offset, std::size_t bytes);

  int device_;
  std::size_t cap_;
  std::list<Region> regions_;
  std::map<std::byte*, Block> blocks_;
  std::size_t taken_ = 0;  // bytes allocated for regions
};

class Pinned {
 public:
  Pinned() = default;
  explicit Pinned(std::size_t bytes)
      : data_(static_cast<std::byte*>(rt::allocate_pinned(bytes))), size_(bytes) {}

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Release {
    void operator()(std::byte* data) const noexcept { rt::release_pinned(data); }
  };
  std::unique_ptr<std::byte, Release> data_;
  std::size_t size_ = 0;
};

// Device scratch for staging, which is not counted as the model's memory.
class DeviceScratch {
 public:
  DeviceScratch(int device, std::size_t bytes);
  ~DeviceScratch() { rt::release(device_, data_); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  std::byte* data() const { return data_; }

 private:
  int device_;
  std::byte* data_;
};

}  // namespace leq::LEQ_GPU
