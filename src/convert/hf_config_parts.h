// transformers 5's rules for keys of config.json that are absent, null or given twice, and checks
// for keys that change the model's function in a way that leq does not support.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "families/family.h"
#include "model/model_config.h"

namespace leq {

// Completes the config with transformers' defaults for absent and null keys, and merges the rope
// settings of all layers into one object, "rope_parameters". Throws Error naming `source` and the
// refused key, or two contradicting keys.
Json complete_hf_config(Json config, std::string_view source);

// Extracts the text model from a multimodal config.json: {"model_type": "mistral3", "text_config":
// {...}, "vision_config": {...}}. leq runs only the text model.

// The config of the text model plus the wrapper's keys that apply to all of its models (tied head,
// quantization, end tokens); returns a config without "text_config" unchanged. Throws Error naming
// `source` if text_config is not an object or if the wrapper's architecture generates no text.
Json text_config_of(Json config, std::string_view source);

// For error messages: describes a model_type that leq recognizes but does not support ("Llama 4: a
// mixture of experts, ..."); empty if it is unknown.
std::string_view known_but_not_run(std::string_view model_type);

// Reads the mixture-of-experts settings of a config.json.

// Replaces the dense MLP by experts in the layers that have them; does nothing for families without
// experts. Throws Error naming `source` and the key that is missing or out of range.
void read_experts(const Json& json, const Family& family, std::string_view source,
                  ModelConfig& config);

// Reads Gated DeltaNet layers, and partial rotary dimensions, from a checkpoint's config.json.

// AttentionConfig::rotary_dims from partial_rotary_factor, in rope_parameters or at the top level,
// otherwise the family's default; 0: the whole head. Throws Error naming `source` and the factor.
std::int32_t rotary_dims_of(const Json& json, const Family& family, std::int64_t head_dim,
                            std::string_view source);

// Sets Gated DeltaNet as the mixer of layers without attention; does nothing for families without
// it. Throws Error naming `source` and the key that is missing or out of range.
void read_delta_layers(const Json& json, const Family& family, std::string_view source,
                       ModelConfig& config);

// Reads the config.json keys that only Muse Glimmer has.

// Reads post_norm_eps, output_multiplier and final_logit_softcapping, and from layer_rope_theta the
// layers with RoPE. `config` must have its layers and rope_theta. Skips other families.
void read_muse(const Json& json, const Family& family, std::string_view source,
               ModelConfig& config);

// The family with the checkpoint's query factor (qk_scale_factor) applied as the gain of its query
// norms.
Family with_query_gain(const Family& family, const Json& json, std::string_view source);

}  // namespace leq
