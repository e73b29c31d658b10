// Rewrites of a block that preserve its function: inputs of linears are divided by s, and the
// linears' columns are multiplied by s. The producer of the inputs absorbs the division if it can;
// otherwise the linear gets inv_smooth, a factor on its inputs at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

enum class Producer : std::uint8_t {
  norm,      // the gain (and beta) of a norm absorbs it
  rows,      // a linear's rows and bias absorb it: v before o, up before down
  run_time,  // no operation can absorb it (GELU before down): inv_smooth
};

// Linears that read one input, and the operation that produces this input.
struct SmoothingSite {
  std::string name;  // name of its LinearSite: "qkv", "o", "gate_up", "down"
  Producer producer = Producer::norm;
  std::string producer_part;           // "attention_norm", "v", "up"; empty for run_time
  std::vector<std::string> consumers;  // {"q", "k", "v"}: linears that determine the scales
  std::int64_t columns = 0;            // K of the consumers
  // [K] index of the scale of each input channel. It is the identity, except after grouped-query
  // attention, where query heads of one KV head share the scales of its v rows.
  std::vector<std::int32_t> scale_of;
  std::int64_t scales = 0;  // largest index + 1
  // Linears of the same input that are never quantized; their columns are scaled too.
  std::vector<std::string> exact = {};
};

// The smoothing sites of a layer, in the order in which their inputs are computed.
std::vector<SmoothingSite> smoothing_sites(const ModelConfig& config, std::int64_t layer = 0);

// Divides the input of the site's consumers by scale[scale_of[k]] and multiplies their columns by
// it, which preserves the block's function in exact arithmetic. `scale` [site.scales] must be
// finite and > 0. Products are computed in double and rounded once.
void fold_scales(BlockTensors& block, const SmoothingSite& site, std::span<const float> scale);

// Folds the bias of v into o: o.bias += W_o repeat_kv(v.bias), v.bias = 0. This is exact,
// because attention weights add up to 1. Without rotary positions the bias of k, which
// shifts all scores of a query alike, becomes 0 too. Afterwards the KV cache contains no
// biases. No effect on a block without q, k and v biases. A block without o.bias gets one,
// as in the configuration of with_attention_biases_folded. Layers with an output gate are
// not changed.
void fold_attention_biases(BlockTensors& block, const ModelConfig& config, std::int64_t layer = 0);
ModelConfig with_attention_biases_folded(ModelConfig config);

// The same model with a bias on every linear of its layers; added biases are zero.
ModelConfig with_linear_biases(ModelConfig config);

}  // namespace leq
