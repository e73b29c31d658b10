// Layers of Gated DeltaNet, and RoPE on a part of each head, by a checkpoint's config.json.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"
#include "models/family.h"

namespace leq {

// AttentionConfig::rotary_dims: by partial_rotary_factor in rope_parameters, else at the top, else
// as the family has it; 0 where all of a head turns. Throws Error naming `source` and the factor.
std::int32_t rotary_dims_of(const Json& json, const Family& family, std::int64_t head_dim,
                            std::string_view source);

// Gives the layers that do not attend Gated DeltaNet for their mixer; nothing where the family has
// none. Throws Error naming `source` and the key that is missing or out of range.
void read_delta_layers(const Json& json, const Family& family, std::string_view source,
                       ModelConfig& config);

}  // namespace leq
