// Assigns blocks within one range of bytes. It only computes offsets and accesses no memory. A new
// block gets the first gap that is large enough, and a block can only be freed as a whole.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "cuda/layout/layout.h"

namespace leq::LEQ_GPU {

class Arena {
 public:
  static constexpr std::size_t kAlignment = gpu::kBlockUnit;
  static constexpr std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  explicit Arena(std::size_t bytes) : bytes_(bytes) {}

  // Returns the offset of a new block of `bytes` (not 0); nullopt if no gap is large enough.
  std::optional<std::size_t> take(std::size_t bytes);
  // Like take(), but assigns the block at the end of the range.
  std::optional<std::size_t> take_last(std::size_t bytes);
  void give_back(std::size_t offset) { used_.erase(offset); }
  bool empty() const { return used_.empty(); }

 private:
  std::size_t bytes_;
  std::map<std::size_t, std::size_t> used_;  // offsets of start and end of each block
};

}  // namespace leq::LEQ_GPU
