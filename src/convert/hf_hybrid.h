// Reads Gated DeltaNet layers, and partial rotary dimensions, from a checkpoint's config.json.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/model_config.h"
#include "models/family.h"

namespace leq {

// AttentionConfig::rotary_dims from partial_rotary_factor, in rope_parameters or at the top level,
// otherwise the family's default; 0: the whole head. Throws Error naming `source` and the factor.
std::int32_t rotary_dims_of(const Json& json, const Family& family, std::int64_t head_dim,
                            std::string_view source);

// Sets Gated DeltaNet as the mixer of layers without attention; does nothing for families without
// it. Throws Error naming `source` and the key that is missing or out of range.
void read_delta_layers(const Json& json, const Family& family, std::string_view source,
                       ModelConfig& config);

}  // namespace leq
