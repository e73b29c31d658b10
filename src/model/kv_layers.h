// Which layers store keys in a wider type than the one asked for.
//
// A bias that is far larger than the key turns with the position (RoPE). Codes along a token would
// have to span the bias instead of the key, codes along a channel how far it turns within a block.
// (Qwen 2.5 has such biases in its first and last layers.)
#pragma once

#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "model/weights.h"

namespace leq {

// Whether some |bias|, times the part of it that codes would have to span, is above 8 times the
// median bias and above 8: keys without bias are a few in size. `parts` is as long as `bias`.
bool large_key_bias(std::span<const float> bias, std::span<const float> parts);

// [layers] types of keys where some layer has to differ from `wanted`; empty where none has. Biases
// are read: `weights` lie on the host.
std::vector<KvType> layer_key_types(const ModelConfig& config, const Weights& weights,
                                    KvType wanted);

}  // namespace leq
