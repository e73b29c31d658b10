// Uploads weights to the device. Threads copy chunks of the host's bytes into pinned slots, a
// separate stream copies these into landing slots on the device, and kernels on the backend's
// stream convert their layout. The three stages overlap; each only waits for its slot.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "cuda/host/memory.h"

namespace leq::LEQ_GPU {

class Uploader {
 public:
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{16} << 20;

  // `landing` is kSlots * slot_bytes of device memory, or null to allocate that memory.
  Uploader(int device, rt::Stream& stream, std::byte* landing, std::size_t slot_bytes);

  // Enqueues kernels on the backend's stream that read `count` units from `landed`.
  using Relay =
      std::function<void(const std::byte* landed, std::int64_t first, std::int64_t count)>;
  // Uploads `units` units of unit_bytes each. When it returns, `from` has been read completely.
  void run(const void* from, std::int64_t units, std::int64_t unit_bytes, const Relay& relay);
  // Uploads bytes without changing the layout.
  void copy(const void* from, std::byte* to, std::int64_t bytes);

  // Waits until all data have arrived and were converted.
  UploadReport finish();

 private:
  struct Slot {
    Pinned host;
    std::byte* landing = nullptr;
    rt::EventOwner copied;  // after it, the pinned slot is free and the landed bytes valid
    rt::EventOwner relaid;  // after it, the landing slot is free
  };
  void use(std::byte* landing, std::size_t slot_bytes);
  void use_own(std::size_t slot_bytes);
  void fill(std::byte* to, const std::byte* from, std::size_t bytes);
  // Uploads one chunk through the next slot; `relay` enqueues kernels on the stream.
  void send(const std::byte* from, std::size_t bytes,
            const std::function<void(const std::byte* landed)>& relay);

  int device_;
  rt::Stream& stream_;
  rt::StreamOwner copies_;
  ThreadPool pool_;
  std::optional<DeviceScratch> own_landing_;
  std::array<Slot, kSlots> slots_;
  std::size_t slot_bytes_ = 0;
  std::size_t next_ = 0;  // index of the next slot
  std::uint64_t bytes_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace leq::LEQ_GPU
