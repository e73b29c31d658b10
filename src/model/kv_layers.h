// Which layers store keys in a wider type than the one asked for.
//
// A bias of a key that is far larger than the key itself turns with the position (RoPE): what codes
// of a token or of a block of positions would have to span is the bias, not the key (Qwen 2.5 has
// such biases in its first and last layers).
#pragma once

#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "model/weights.h"

namespace leq {

// Whether some |bias| is above 8 times the median one and above 8: keys without bias are a few in
// size.
bool large_key_bias(std::span<const float> bias);

// [layers] types of keys where some layer has to differ from `wanted`; empty where none has. Biases
// are read: `weights` lie on the host.
std::vector<KvType> layer_key_types(const ModelConfig& config, const Weights& weights,
                                    KvType wanted);

}  // namespace leq
