// Runs all calibration windows through one block and gathers statistics of its linears' inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/calibration/hidden_states.h"
#include "quantize/calibration/statistics.h"
#include "quantize/pipeline/block_run.h"

namespace leq {

inline constexpr int kSampleTokens = 512;  // number of input rows that calibration keeps

// The part of a sublayer that a pass runs.
enum class Extent : std::uint8_t {
  none,
  inputs,  // runs up to the last linear whose inputs are needed
  whole,
};

struct Pass {
  Extent mixer = Extent::whole;
  Extent mlp = Extent::whole;
  std::vector<std::size_t> sites = {};  // sites whose inputs are gathered
  StatisticsWanted wanted = {};
  bool keep = true;  // store the outputs of complete sublayers as the hidden states
};

struct PassResult {
  std::map<std::size_t, InputStatistics> statistics;  // by site
  // Largest difference of all sites between the first and the second half of the windows.
  HalvesDifference halves;
};

struct PassContext {
  BlockRun& run;
  HiddenStates& hidden;
  Backend& backend;
  ThreadPool& pool;
  std::string block;                        // "layers.3", for error messages
  std::function<void()> on_window = [] {};  // called after each window; may throw to end the pass
  // The ranks that divide the windows. All run the same passes, and all receive all statistics.
  Communicator& ranks = one_rank();
};

PassResult run_pass(const PassContext& context, const Pass& pass);

}  // namespace leq
