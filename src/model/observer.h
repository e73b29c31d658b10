// Receives the inputs of a layer's linears; passed by the caller (calibration).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/weights.h"

namespace leq {

class Observer {
 public:
  virtual ~Observer() = default;
  // The first `tokens` rows of `input` are what `linear` multiplies its weights with, f32 where
  // that linear takes floats. Returns whether the rest of this sublayer is wanted.
  virtual bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) = 0;
};

}  // namespace leq
