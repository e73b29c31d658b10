// Small arrays on their way to the device: token ids, runs, page lists. A ring of pinned memory and
// its copy on the device, so that a launch never waits for the host's copy.
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

  // `values` on the device, valid for operations that are launched before the ring comes round: the
  // next push that does not fit waits for all of them. Throws Error for more than the ring holds.
  template <class T>
  const T* push(std::span<const T> values) {
    return reinterpret_cast<const T*>(push_bytes(std::as_bytes(values)));
  }
  template <class T>
  const T* push(const std::vector<T>& values) {
    return push(std::span<const T>(values));
  }
  // The same to a place of its own on the device.
  template <class T>
  void send(const std::vector<T>& values, std::byte* to) {
    send_bytes(std::as_bytes(std::span(values)), to);
  }
  // How often the ring has begun anew: what was pushed in another round is gone.
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
