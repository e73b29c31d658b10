#include "cuda/staging.h"

#include "base/error.h"
#include "cuda/layout.h"

namespace leq::LEQ_GPU {
Staging::Staging(int device, rt::Stream& stream)
    : stream_(stream), host_(kRingBytes), device_(device, kRingBytes) {}

const std::byte* Staging::push_bytes(std::span<const std::byte> bytes) {
  const auto room = static_cast<std::size_t>(round_up_to(std::ssize(bytes), 16));
  require(room <= kRingBytes, "GPU: a batch's lists take ", bytes.size(), " bytes, room for ",
          kRingBytes, "; use a smaller -b or -c");
  if (used_ + room > kRingBytes) {
    rt::synchronize(stream_);
    used_ = 0;
    ++round_;
  }
  std::memcpy(host_.data() + used_, bytes.data(), bytes.size());
  std::byte* there = device_.data() + used_;
  rt::copy_to_device(there, host_.data() + used_, bytes.size(), stream_);
  used_ += room;
  return there;
}

}  // namespace leq::LEQ_GPU
