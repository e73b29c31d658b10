// Function-preserving rewrites of a block: inputs of linears are divided by s and the linears'
// columns multiplied by it. What produces the inputs takes the division where it can, else the
// linear carries inv_smooth and divides at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "quantize/rewrites/block_tensors.h"

namespace leq {

enum class Producer : std::uint8_t {
  norm,      // gain (and beta) of a norm
  rows,      // the rows and the bias of a linear: v before o, up before down
  run_time,  // nothing can take it: inv_smooth of the consumer (GELU before down)
};

// Linears that read one input, and what produces that input.
struct SmoothingSite {
  std::string name;  // of its LinearSite: "qkv", "o", "gate_up", "down"
  Producer producer = Producer::norm;
  std::string producer_part;           // "attention_norm", "v", "up"; empty at run time
  std::vector<std::string> consumers;  // {"q", "k", "v"}: they decide the scales
  std::int64_t columns = 0;            // K of the consumers
  // Input channel -> index of its scale, [K]. The identity but after grouped-query attention,
  // where the query heads of one kv head share the scales of its v rows.
  std::vector<std::int32_t> scale_of;
  std::int64_t scales = 0;  // largest index + 1
  // Linears of the same input that are never quantized: their columns are scaled alike.
  std::vector<std::string> exact = {};
};

// The sites of a layer, in the order in which their inputs are computed.
std::vector<SmoothingSite> smoothing_sites(const ModelConfig& config, std::int64_t layer = 0);

// Divides the input of the site's consumers by scale[scale_of[k]] and multiplies their columns by
// it: the block's function stays the same in exact arithmetic. `scale` [site.scales], each finite
// and > 0. Products in double, rounded once.
void fold_scales(BlockTensors& block, const SmoothingSite& site, std::span<const float> scale);

// Attention weights add up to 1, so a bias of v passes through them unchanged:
// o.bias += W_o repeat_kv(v.bias), v.bias = 0. Where there are no rotary positions the bias of k
// moves all scores of a query alike and becomes 0 too. Exact; it keeps the biases out of the KV
// cache. Does nothing to a block without q, k and v biases. A block without o.bias gets one: the
// model's configuration is then that of with_attention_biases_folded. Layers with an output gate
// stay as they are.
void fold_attention_biases(BlockTensors& block, const ModelConfig& config, std::int64_t layer = 0);
ModelConfig with_attention_biases_folded(ModelConfig config);

// The same model with a bias on every linear of its layers, zero where there was none.
ModelConfig with_linear_biases(ModelConfig config);

}  // namespace leq
