// The quality of a random rotation varies: tries the signs of several seeds and keeps those with
// the least loss of the rounded weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "quantize/calibration/calibration_data.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/block_source.h"

namespace leq {

struct RotationSearch {
  std::uint64_t first_seed = 0;
  int seeds = 8;                // first_seed, first_seed + 1, ...
  BlockRewrites rewrites;       // applied beside the rotation
  TensorPlanner plan;           // the types that weights are rounded to
  const CalibrationData& data;  // only its first windows are used
  int threads = 0;
  std::function<bool()> stop = [] { return false; };  // true ends the search with an Error
};
struct RotationChoice {
  std::uint64_t seed = 0;
  double loss = 0;
  double worst_loss = 0;  // largest among the seeds tried
};

// Loss of a seed: the mean over all integer block linears of sum h_k (W - Wq)_nk^2 / sum h_k
// W_nk^2, Wq the nearest codes of the rotated weight's plain ranges and h_k the mean square of its
// input k after the unquantized rotated blocks. Of equal seeds the first. Throws Error where no
// block linear has an integer type.
RotationChoice search_rotation(const ModelConfig& config, std::span<const TensorInput> tensors,
                               const RotationSearch& search);

}  // namespace leq
