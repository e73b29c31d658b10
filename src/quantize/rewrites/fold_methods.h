// The folds of a method or chosen separately:
// SmoothQuant, AWQ, and the data-free equalizer.
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

// The linears that read one input with the statistics of that input, for choosing a fold.
struct FoldInput {
  const SmoothingSite& site;
  const BlockTensors& block;
  const InputStatistics& statistics;
  std::function<TensorPlan(const std::string& part)> plan;  // of a consumer: "q"
  ThreadPool& pool;
  Communicator& ranks = one_rank();
};
struct FoldChoice {
  std::vector<float> scales;  // [site.scales] divisors of the input; empty = no fold
  // The consumers' new weights, where the fold does more than multiply their columns.
  std::vector<std::vector<float>> weights = {};
};
struct FoldMethod {
  std::string name;  // "smoothquant, alpha searched"
  bool wants_hessian = false;
  std::function<FoldChoice(const FoldInput&)> choose;
};

// With alpha: the same for all sites; without: the one of least error for each site, or no scaling.
FoldMethod smoothing_fold(std::optional<double> alpha);
// s = 1 / max |W| of each channel, for comparison: ignores the inputs.
FoldMethod equalizer_fold();
// AWQ: scales by exponent search, then clipped groups.
FoldMethod awq_fold();
// AWQ's scales alone, for methods that choose ranges and codes: errors are weighted by the mean
// squares of the inputs.
FoldMethod awq_scales_fold();

}  // namespace leq
