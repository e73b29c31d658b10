// The folds that a method has or that are chosen beside it: SmoothQuant, AWQ, and the data-free
// equaliser.
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

// A rewrite of the linears that read one input, chosen with what is known of that input.
struct FoldInput {
  const SmoothingSite& site;
  const BlockTensors& block;
  const InputStatistics& statistics;
  std::function<TensorPlan(const std::string& part)> plan;  // of a consumer: "q"
  ThreadPool& pool;
  Communicator& ranks = one_rank();
};
struct FoldChoice {
  std::vector<float> scales;  // [site.scales] that the input is divided by; empty = leave it
  // The consumers' weights from then on, where more is done to them than the multiplication.
  std::vector<std::vector<float>> weights = {};
};
struct FoldMethod {
  std::string name;  // "smoothquant, alpha searched"
  bool wants_hessian = false;
  std::function<FoldChoice(const FoldInput&)> choose;
};

// With one alpha for all sites; without: for each site the one of least error, none among them.
FoldMethod smoothing_fold(std::optional<double> alpha);
// s = 1 / max |W| of each channel, for comparison: no look at the inputs.
FoldMethod equalizer_fold();
// AWQ: scales by exponent search, then clipped groups.
FoldMethod awq_fold();
// AWQ's scales alone, in front of a method that picks ranges and codes: errors are weighed by the
// mean squares of the inputs.
FoldMethod awq_scales_fold();

}  // namespace leq
