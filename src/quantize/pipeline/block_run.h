// Runs one block of a model on stored hidden states, with the f32 weights of BlockTensors. It uses
// the engine's own forward pass on a model with one block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "cache/fixed_states.h"
#include "cache/kv_cache.h"
#include "model/transformer.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

class BlockRun {
 public:
  // For sequences of at most `length` tokens. `block` and `backend` must outlive the run. Between
  // calls the values of the block's tensors may change, but not their sizes. Throws Error naming a
  // tensor of the block that is missing or has a wrong shape.
  BlockRun(const ModelConfig& config, std::int64_t layer, const BlockTensors& block,
           Backend& backend, std::int64_t length);
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  // Runs one sublayer in place on the hidden states [T][W] of a sequence. Returns false if the
  // observer stopped it; the states are then unchanged.
  bool run(Sublayer which, std::span<float> hidden, Observer* observer);

  const ModelConfig& config() const { return config_; }
  const std::vector<LinearSite>& sites() const { return sites_; }  // sites of the layer
  std::int64_t tokens_of(std::size_t numbers) const {
    return static_cast<std::int64_t>(numbers) / config_.width;
  }

  // Upper bound of the bytes that the constructor allocates from the backend.
  static std::uint64_t bytes(const ModelConfig& config, std::int64_t layer, const Layout& layout,
                             std::int64_t length);

 private:
  Weights bind(const BlockTensors& block, Backend& backend);

  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::vector<float> zeros_;  // placeholder for tensors outside the block
  ModelConfig config_;        // configuration with one block and one position
  std::vector<LinearSite> sites_;
  Weights weights_;
  KvCache cache_;
  std::unique_ptr<FixedStates> states_;  // null if the block has none
  Transformer transformer_;
};

}  // namespace leq
