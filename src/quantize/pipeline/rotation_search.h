// Searches for a good random rotation, because their quality varies: tries the signs of several
// seeds and keeps those with the least loss of the rounded weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "quantize/calibration/calibration_data.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/block_run.h"

namespace leq {

struct RotationSearch {
  std::uint64_t first_seed = 0;
  int seeds = 8;                // number of seeds: first_seed, first_seed + 1, ...
  BlockRewrites rewrites;       // rewrites other than the rotation
  TensorPlanner plan;           // types that weights are rounded to
  const CalibrationData& data;  // only its first windows are used
  int threads = 0;
  std::function<bool()> stop = [] { return false; };  // ends the search with an Error if true
};
struct RotationChoice {
  std::uint64_t seed = 0;
  double loss = 0;
  double worst_loss = 0;  // largest among the seeds tried
};

// The loss of a seed is the mean over all integer linears of blocks of the relative error
// sum h_k (W - Wq)_nk^2 / sum h_k W_nk^2. Wq are the nearest codes in plain ranges of the rotated
// weight, h_k is the mean square of input k in the unquantized rotated model. On ties the first
// seed is chosen. Throws Error if no linear of a block has an integer type.
RotationChoice search_rotation(const ModelConfig& config, std::span<const TensorInput> tensors,
                               const RotationSearch& search);

}  // namespace leq
