#include "cuda/host/arena.h"

namespace leq::LEQ_GPU {

std::optional<std::size_t> Arena::take(std::size_t bytes) {
  const std::size_t size = aligned(bytes);
  std::size_t gap = 0;  // start of the gap before the next block
  for (const auto& [begin, end] : used_) {
    if (begin - gap >= size) break;
    gap = end;
  }
  if (bytes_ < gap || bytes_ - gap < size) return std::nullopt;
  used_[gap] = gap + size;
  return gap;
}

std::optional<std::size_t> Arena::take_last(std::size_t bytes) {
  const std::size_t size = aligned(bytes);
  const std::size_t end = used_.empty() ? 0 : used_.rbegin()->second;
  if (bytes_ < end || bytes_ - end < size) return std::nullopt;
  const std::size_t begin = (bytes_ - size) / kAlignment * kAlignment;
  if (begin < end) return std::nullopt;
  used_[begin] = begin + size;
  return begin;
}

}  // namespace leq::LEQ_GPU
