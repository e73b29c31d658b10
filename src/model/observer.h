// Interface for callers that need the inputs of a layer's linears (calibration).
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/weights.h"

namespace leq {

class Observer {
 public:
  virtual ~Observer() = default;
  // `input`'s first `tokens` rows are what `linear` reads, in f32 if it reads floats. Returns
  // whether the rest of this sublayer should run.
  virtual bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) = 0;
};

}  // namespace leq
