// Device memory for tests: arrays that are copied to the device and back.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU {

inline rt::Stream& test_stream() {
  static const rt::StreamOwner stream = rt::make_stream(0);
  return *stream;
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size)
      : size_(size), data_(static_cast<T*>(rt::allocate(0, size * sizeof(T)))) {}
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size()) {
    rt::copy_to_device(data_, values.data(), values.size_bytes(), test_stream());
    rt::synchronize(test_stream());
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(std::span<const T>(values)) {}
  ~DeviceArray() { rt::release(0, data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::span<std::byte> bytes() const {
    return {reinterpret_cast<std::byte*>(data_), size_ * sizeof(T)};
  }
  void zero() const { rt::fill_zero(data_, size_ * sizeof(T), test_stream()); }
  std::vector<T> host() const {
    std::vector<T> values(size_);
    rt::copy_to_host(values.data(), data_, size_ * sizeof(T), test_stream());
    rt::synchronize(test_stream());
    return values;
  }

 private:
  std::size_t size_;
  T* data_;
};

// On the emulator, the arrays contain poison until a kernel writes their contents; this kernel runs
// just before the next one. A next kernel that reads them before its wait is thus detected.
void write_late(std::initializer_list<std::span<std::byte>> arrays);

}  // namespace leq::LEQ_GPU
