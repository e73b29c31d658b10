// Random Hadamard rotation of a model, folded into its weights (QuaRot, Ashkboos et al. 2024, "R1"
// and "R2"). It spreads outlier channels over all channels of a block and preserves the function.
// Embedding and head are not changed; the engine rotates the stream after the embedding and back
// before the final norm (ModelConfig::rotation).
#pragma once

#include <cstdint>

#include "model/model_config.h"
#include "quantize/rewrites/fold.h"

namespace leq {

// The configuration of `config`'s model after rotation with the signs of `seed`. The block size is
// the largest power of two that divides the width. In a LayerNorm model the betas of the layers'
// norms are folded into the biases of the linears after them, so that all linears of its layers get
// biases; an RMSNorm has no beta, and its model gets none. Throws Error if the model is already
// rotated or its width is odd.
ModelConfig rotated(const ModelConfig& config, std::uint64_t seed);

// Rewrites layer `layer` of the model `config` (as it was before rotation) for a rotated stream
// x' = x Q:
//   W_in  <- W_in diag(gain) Q, b_in += W_in beta        q, k, v, gate, up; gain = 1, no beta
//   W_out <- Q^T C W_out, b_out <- Q^T C b_out           o, down; C subtracts the mean (LayerNorm)
//   W_v   <- R^T W_v, b_v <- R^T b_v, W_o <- W_o R       R: Hadamard within each head
// Sums and products in double, each number rounded once. Throws Error if a tensor is missing.
void rotate_block(BlockTensors& block, const ModelConfig& config, const Rotation& rotation,
                  std::int64_t layer = 0);

}  // namespace leq
