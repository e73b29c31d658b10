#include "cuda/host/row_download.h"

#include <algorithm>

namespace leq::LEQ_GPU {

void RowDownload::reserve(std::size_t row_bytes) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  const std::size_t wanted = pinned_.size() == 0 ? std::max(row_bytes, kBytes) : row_bytes;
  if (pinned_.size() < wanted) pinned_ = Pinned(wanted);
}

void RowDownload::download(const Rows& x, std::int64_t tokens, std::span<float> out) {
  const auto row = static_cast<std::size_t>(x.value_stride) * sizeof(float);
  reserve(row);
  const auto most = static_cast<std::int64_t>(pinned_.size() / row);
  for (std::int64_t first = 0; first < tokens; first += most) {
    const std::int64_t count = std::min(most, tokens - first);
    rt::copy_to_host(pinned_.data(), x.values + first * x.value_stride,
                     static_cast<std::size_t>(count) * row, stream_);
    faults_.synchronize();
    for (std::int64_t t = 0; t < count; ++t) {
      std::copy_n(reinterpret_cast<const float*>(pinned_.data()) + t * x.value_stride, x.width,
                  out.data() + (first + t) * x.width);
    }
  }
}

std::span<const float> RowDownload::row(const Rows& x, std::int64_t row) {
  const auto bytes = static_cast<std::size_t>(x.width) * sizeof(float);
  reserve(bytes);
  rt::copy_to_host(pinned_.data(), x.values + row * x.value_stride, bytes, stream_);
  faults_.synchronize();
  return {reinterpret_cast<const float*>(pinned_.data()), static_cast<std::size_t>(x.width)};
}

}  // namespace leq::LEQ_GPU
