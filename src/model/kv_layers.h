// What biases of keys mean for a cache of codes.
//
// A bias that is far larger than the key rotations with the position (RoPE). Codes along a token
// would have to span the bias instead of the key, codes along a channel how far it rotations within
// a block. (Qwen 2.5 has such biases in its first and last layers.) Most of such a bias rotations
// slowly: its mean is a centre that codes along tokens do without. Layers where too much is left
// keep their keys in a wider type than the one asked for.
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

// Tells centres apart, for sequences that are saved; 0 where keys are stored as they are. `wanted`:
// the types of keys [layers].
std::uint32_t key_centre_check(const Weights& weights, std::span<const KvType> wanted);

// Whether some |bias|, times the part of it that codes would have to span, is above 8 times the
// median bias and above 8: keys without bias are a few in size. `parts` is as long as `bias`.
bool large_key_bias(std::span<const float> bias, std::span<const float> parts);

// Types of keys [attention layers] become f16 where a bias asks for it.
void widen_keys(const ModelConfig& config, const Weights& weights, std::span<KvType> types);

}  // namespace leq
