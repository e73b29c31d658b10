// Tracks which sequences of a session are in use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace leq {

class SequencePool {
 public:
  explicit SequencePool(int sequences) : taken_(static_cast<std::size_t>(sequences), false) {}

  std::size_t size() const { return taken_.size(); }
  std::int64_t taken() const { return std::ranges::count(taken_, true); }
  bool is_taken(std::int32_t sequence) const { return taken_[static_cast<std::size_t>(sequence)]; }
  bool has_idle() const { return std::ranges::find(taken_, false) != taken_.end(); }

  // The first idle sequence, which stays idle. Throws Error if all sequences are in use.
  std::int32_t idle() const {
    const auto free = std::ranges::find(taken_, false);
    require(free != taken_.end(), "saved prompts: all ", taken_.size(),
            " sequences are in use; try again when a reply has ended, or with more ",
            Setting{"sequences"});
    return static_cast<std::int32_t>(free - taken_.begin());
  }
  std::int32_t take() {
    const std::int32_t sequence = idle();
    taken_[static_cast<std::size_t>(sequence)] = true;
    return sequence;
  }
  void give_back(std::int32_t sequence) { taken_[static_cast<std::size_t>(sequence)] = false; }

 private:
  std::vector<bool> taken_;
};

}  // namespace leq
