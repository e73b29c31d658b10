// Handling of large key biases in a quantized KV cache.
//
// RoPE rotates a key's bias with the position. If the bias is far larger than the key (as in the
// first and last layers of Qwen 2.5), codes along a token mostly encode the bias, and codes along a
// channel its rotation within a block. Most of such a bias rotates slowly, so that its mean (the
// centre) can be subtracted before keys are quantized along tokens. Layers in which too much of the
// bias remains store their keys in a wider type than requested.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "model/weights.h"

namespace leq {

// The centre [H_kv d] of a layer's keys: the vector that they have in common before RoPE (their
// bias or measured mean), rotated and averaged over the positions that the model was made for;
// empty if none is known. Subtracting one vector from all keys shifts all scores of a query by the
// same amount, which does not change the softmax.
std::vector<float> key_centre(const ModelConfig& config, const AttentionConfig& attention,
                              std::span<const float> common);

// Whether keys of this type are stored with their centre subtracted.
bool keys_are_centred(KvType type);

// A checksum of the centres, for saved sequences; 0 if no keys are stored with a centre subtracted.
// `wanted`: the types of keys [layers].
std::uint32_t key_centre_check(const Weights& weights, std::span<const KvType> wanted);

// Whether in some channel |bias| times the part that codes must cover is above 8 and above 8 times
// the median |bias|; keys without bias are below 8. `parts` is as long as `bias`.
bool large_key_bias(std::span<const float> bias, std::span<const float> parts);

// Sets the types of keys [attention layers] to f16 in layers whose key bias requires it.
void widen_keys(const ModelConfig& config, const Weights& weights, std::span<KvType> types);

}  // namespace leq
