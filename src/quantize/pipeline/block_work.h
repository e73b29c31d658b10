// One block on its way from f32 to its stored tensors: folded, judged and quantized part by part,
// in the order that the run (quantize_blocks.cpp) chooses.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "model/tensor_list.h"
#include "quantize/calibration/statistics.h"
#include "quantize/pipeline/partial_run.h"
#include "quantize/pipeline/quantize_blocks.h"
#include "quantize/pipeline/quantize_tensor.h"
#include "quantize/pipeline/site_inputs.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

using Statistics = std::map<std::size_t, InputStatistics>;  // by site

// What the blocks of a run share; all of it outlives them.
struct BlockContext {
  const ModelConfig& config;  // of the blocks as they are written
  const BlockOptions& options;
  ThreadPool& pool;
  Communicator& ranks;
  bool sequential = false;  // what is quantized replaces the f32 weights at once
};

// Experts with fewer tokens are rounded without what is known of their inputs.
inline constexpr std::int64_t kFewestExpertTokens = 32;

// How many tokens calibration showed the experts of a layer, or of all.
struct ExpertTokens {
  std::int64_t experts = 0;
  std::int64_t fewest = 0;  // of one
  std::string site;         // which
  std::int64_t rare = 0;    // with fewer than kFewestExpertTokens
};

class BlockWork {
 public:
  BlockWork(const BlockContext& context, std::int64_t layer, BlockTensors tensors)
      : context_(context),
        layer_(layer),
        sites_(linear_sites(context.config, layer)),
        specs_(layer_tensors(context.config, layer)),
        block_(std::move(tensors)) {}

  std::int64_t layer() const { return layer_; }
  // As they are now; they stay where they are.
  const BlockTensors& tensors() const { return block_; }
  const std::vector<LinearSite>& sites() const { return sites_; }

  // Moves sizes of input channels by options.fold and divides what was seen of them.
  void fold(Statistics& statistics);
  // Before the linears of these sites are quantized: notes where a fixed scale does not suit an
  // input (act tensor), and experts of which too little was seen.
  void judge_inputs(std::size_t site, const InputStatistics& inputs);
  const ExpertTokens& expert_tokens() const { return experts_; }
  // How many numbers a linear has.
  std::int64_t size_of(const std::string& part) const;
  // Whether ranks can divide the rows of a linear.
  bool divides_rows(const std::string& part) const;
  // Chooses the codes of a linear: all ranks together where they divide its rows.
  QuantizedTensor quantize(const std::string& part, const InputStatistics& inputs) const;
  // What was chosen, here or on another rank: corrects its bias, replaces its weights.
  void keep(const std::string& part, QuantizedTensor chosen, const InputStatistics& inputs);
  // All tensors of the block, once each linear is quantized.
  std::vector<BlockTensor> finish();

 private:
  TensorPlan plan_of(const std::string& part) const;
  void judge_static_scale(std::size_t site, const InputStatistics& inputs);
  void count_tokens(std::size_t site, const InputStatistics& inputs);
  bool is_rare(const std::string& part) const;
  const TensorSpec* find_part(const std::string& part) const;
  void note_key_mean(const InputStatistics& inputs);

  BlockContext context_;
  std::int64_t layer_;
  std::vector<LinearSite> sites_;
  std::vector<TensorSpec> specs_;
  BlockTensors block_;
  std::map<std::string, QuantizedTensor> done_;
  std::map<std::size_t, std::string> folds_;  // by site: checksums of the scales
  std::set<std::string> by_token_;            // blocks of inputs that a fixed scale does not suit
  std::set<std::size_t> rare_;                // sites of experts with too few tokens
  ExpertTokens experts_;
};

}  // namespace leq
