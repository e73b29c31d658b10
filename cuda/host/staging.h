// Uploads small arrays to the device: token ids, runs, page lists. It uses a ring of pinned memory
// and a copy of the ring on the device, so that a launch never waits for the host's copy.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "cuda/host/memory.h"

namespace leq::LEQ_GPU {

class Staging {
 public:
  static constexpr std::size_t kRingBytes = std::size_t{4} << 20;

  Staging(int device, rt::Stream& stream);

  // `values` on the device, valid for operations that are launched before the ring wraps around: a
  // push that does not fit then waits for these. Throws Error if the ring is smaller than `values`.
  template <class T>
  const T* push(std::span<const T> values) {
    return reinterpret_cast<const T*>(push_bytes(std::as_bytes(values)));
  }
  template <class T>
  const T* push(const std::vector<T>& values) {
    return push(std::span<const T>(values));
  }
  // Does the same for a separate buffer on the device.
  template <class T>
  void send(const std::vector<T>& values, std::byte* to) {
    send_bytes(std::as_bytes(std::span(values)), to);
  }
  // How often the ring has wrapped around. Data that were pushed in earlier rounds are overwritten.
  std::uint64_t round() const { return round_; }

 private:
  const std::byte* push_bytes(std::span<const std::byte> bytes);
  void send_bytes(std::span<const std::byte> bytes, std::byte* to);
  std::size_t place(std::span<const std::byte> bytes);

  rt::Stream& stream_;
  Pinned host_;
  DeviceScratch device_;
  std::size_t used_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace leq::LEQ_GPU
