// Sees what the linears of a block read; handed in by the caller (calibration).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/workspace.h"

namespace leq {

// x += o(attention(...)) and x += down(...).
enum class BlockHalf : std::uint8_t { attention, mlp };

class Observer {
 public:
  virtual ~Observer() = default;
  // The first `tokens` rows of `input` are what the linear `reader` multiplies its weights with,
  // f32 where that linear takes floats. Returns whether the rest of this half is wanted.
  virtual bool see(Reader reader, const Rows& input, std::int64_t tokens) = 0;
};

}  // namespace leq
