#include "cuda/host/staging.h"

#include <utility>

#include "base/error.h"
#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {
Staging::Staging(int device, rt::Stream& stream)
    : stream_(stream), host_(kRingBytes), device_(device, kRingBytes) {}

// Copies bytes into the ring; returns their offset. A recording must not use it: the ring wraps.
std::size_t Staging::place(std::span<const std::byte> bytes) {
  ensure(!rt::is_capturing(stream_), "GPU: a recorded step reads a list that it did not name");
  const auto padded = static_cast<std::size_t>(gpu::round_up_to(std::ssize(bytes), 16));
  require(padded <= kRingBytes, ErrorKind::bad_setting, "GPU: a batch's lists take ", bytes.size(),
          " bytes, room for ", kRingBytes, "; use a smaller ", Setting{"batch_tokens"}, " or ",
          Setting{"context"});
  if (used_ + padded > kRingBytes) {
    rt::synchronize(stream_);
    used_ = 0;
    ++round_;
  }
  std::memcpy(host_.data() + used_, bytes.data(), bytes.size());
  return std::exchange(used_, used_ + padded);
}

const std::byte* Staging::push_bytes(std::span<const std::byte> bytes) {
  const std::size_t at = place(bytes);
  rt::copy_to_device(device_.data() + at, host_.data() + at, bytes.size(), stream_);
  return device_.data() + at;
}

void Staging::send_bytes(std::span<const std::byte> bytes, std::byte* to) {
  rt::copy_to_device(to, host_.data() + place(bytes), bytes.size(), stream_);
}

}  // namespace leq::LEQ_GPU
