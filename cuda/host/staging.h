// Uploads small arrays to the device: token ids, runs, page lists. It uses a ring buffer of pinned
// memory and a copy of it on the device, so that a launch never waits for the host's copy.
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

  // Returns `values` on the device, valid for operations launched before the ring wraps around; a
  // push that does not fit waits for these. Throws Error if the ring is smaller than `values`.
  template <class T>
  const T* push(std::span<const T> values) {
    return reinterpret_cast<const T*>(push_bytes(std::as_bytes(values)));
  }
  template <class T>
  const T* push(const std::vector<T>& values) {
    return push(std::span<const T>(values));
  }
  // Uploads to a separate buffer on the device instead.
  template <class T>
  void send(const std::vector<T>& values, std::byte* to) {
    send_bytes(std::as_bytes(std::span(values)), to);
  }
  // The number of times that the ring has wrapped around, which overwrites data of earlier rounds.
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
