// The folds that belong to a method or are selected on their own: SmoothQuant, AWQ, and an
// equalizer that needs no data.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/rewrites/block_tensors.h"
#include "quantize/rewrites/fold.h"

namespace leq {

// Linears that read one input and the statistics of that input, from which a fold is chosen.
struct FoldInput {
  const SmoothingSite& site;
  const BlockTensors& block;
  const InputStatistics& statistics;
  std::function<TensorPlan(const std::string& part)> plan;  // plan of a consumer: "q"
  ThreadPool& pool;
  Communicator& ranks = one_rank();
};
struct FoldChoice {
  std::vector<float> scales;  // [site.scales] divisors of the input; empty = no fold
  // The consumers' new weights, if the fold does more than multiply their columns.
  std::vector<std::vector<float>> weights = {};
};
struct FoldMethod {
  std::string name;  // for users: "smoothquant, alpha searched"
  bool wants_hessian = false;
  std::function<FoldChoice(const FoldInput&)> choose;
};

// SmoothQuant with one alpha for all sites or, without alpha, with the best of each site (or none).
FoldMethod smoothing_fold(std::optional<double> alpha);
// s = 1 / max |W| of each channel; ignores the inputs. For comparison.
FoldMethod equalizer_fold();
// AWQ: scales found by a search over exponents, then clipped groups.
FoldMethod awq_fold();
// AWQ's scales without clipping, for methods that choose ranges and codes. Errors are weighted by
// the mean squares of the inputs.
FoldMethod awq_scales_fold();

}  // namespace leq
