// Converts one block from f32 to its stored tensors. Folds it, checks its inputs and quantizes it
// part by part, in the order of the run (quantize_blocks.cpp).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/linear_sites.h"
#include "quantize/calibration/statistics.h"
#include "quantize/run/block_run.h"
#include "quantize/run/partial_run.h"
#include "quantize/run/quantize_blocks.h"
#include "quantize/run/quantize_tensor.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {

using Statistics = std::map<std::size_t, InputStatistics>;  // by site

// Data that the blocks of a run share; all referenced objects must outlive them.
struct BlockContext {
  const ModelConfig& config;  // configuration of the written model's blocks
  const BlockOptions& options;
  ThreadPool& pool;
  Communicator& ranks;
  bool sequential = false;  // quantized weights replace f32 weights immediately
};

// Experts with fewer calibration tokens than this are quantized without input statistics.
inline constexpr std::int64_t kFewestExpertTokens = 32;

// Number of calibration tokens of the experts in a layer, or in all layers.
struct ExpertTokens {
  std::int64_t experts = 0;
  std::int64_t fewest = 0;  // least number of tokens of any expert
  std::string site;         // site of that expert
  std::int64_t rare = 0;    // experts with fewer than kFewestExpertTokens
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
  // The tensors in their current state; their addresses do not change.
  const BlockTensors& tensors() const { return block_; }
  const std::vector<LinearSite>& sites() const { return sites_; }

  // Scales input channels with options.fold and divides the statistics by the same scales.
  void fold(Statistics& statistics);
  // Called before the linears of these sites are quantized. Marks the inputs that need a scale for
  // each token (act tensor), and the experts that have too few tokens.
  void check_inputs_scale(std::size_t site, const InputStatistics& inputs);
  const ExpertTokens& expert_tokens() const { return experts_; }
  // Number of weights of a linear.
  std::int64_t size_of(const std::string& part) const;
  // Whether ranks can divide the rows of a linear.
  bool divides_rows(const std::string& part) const;
  // Chooses the codes of a linear; all ranks do so together if they can divide its rows.
  QuantizedTensor quantize(const std::string& part, const InputStatistics& inputs) const;
  // Stores codes chosen on any rank: corrects the linear's bias and replaces its weights.
  void keep(const std::string& part, QuantizedTensor chosen, const InputStatistics& inputs);
  // Returns all tensors of the block, after each linear was quantized.
  std::vector<BlockTensor> finish();

 private:
  TensorPlan plan_of(const std::string& part) const;
  void check_static_scale(std::size_t site, const InputStatistics& inputs);
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
  std::set<std::string> by_token_;            // names of blocks whose inputs need a scale per token
  std::set<std::size_t> rare_;                // sites of experts with too few tokens
  ExpertTokens experts_;
};

}  // namespace leq
