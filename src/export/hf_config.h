// Creates Hugging Face's config.json for a .leq file.
#pragma once

#include "base/json.h"
#include "families/family.h"
#include "model/open_model.h"

namespace leq {

// The family whose transformers class computes the given configuration. Throws Error naming a
// feature that no known class has: added biases, differing layers.
const Family& hf_family_of(const ModelConfig& config);

// The config.json, readable by transformers 4 and 5; `dtype` is "float32".
Json hf_config(const Model& model, const Family& family);
// generation_config.json.
Json hf_generation_config(const Model& model);

}  // namespace leq
