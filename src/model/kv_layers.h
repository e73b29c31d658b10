// Biases of keys in a quantized KV cache.
//
// RoPE rotates a key's bias with the position. Where the bias is far larger than the key, codes
// along a token would have to cover the bias instead of the key, codes along a channel its rotation
// within a block. (Qwen 2.5 has such biases in its first and last layers.) Most of such a bias
// rotates slowly: its mean is a centre that is subtracted before keys are quantized along tokens.
// Layers where too much is left keep their keys in a wider type than the one asked for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kv_types.h"
#include "model/weights.h"

namespace leq {

// What all keys of a layer have in common before RoPE, their bias or their measured mean, rotated
// and averaged over the positions that the model was made for [H_kv d]; empty where nothing is
// known of it. Subtracting one vector from every key moves all scores of a query alike, which
// softmax does not see.
std::vector<float> key_centre(const ModelConfig& config, const AttentionConfig& attention,
                              std::span<const float> common);

// Whether keys of this type are stored less their centre.
bool keys_are_centred(KvType type);

// A checksum of the centres, for saved sequences; 0 where keys are stored without a centre.
// `wanted`: the types of keys [layers].
std::uint32_t key_centre_check(const Weights& weights, std::span<const KvType> wanted);

// Whether some |bias|, times the part of it that codes would have to span, is above 8 times the
// median bias and above 8: keys without bias are a few in size. `parts` is as long as `bias`.
bool large_key_bias(std::span<const float> bias, std::span<const float> parts);

// Sets the types of keys [attention layers] to f16 where a bias needs it.
void widen_keys(const ModelConfig& config, const Weights& weights, std::span<KvType> types);

}  // namespace leq
