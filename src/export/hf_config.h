// config.json of Hugging Face for a .leq file.
#pragma once

#include "base/json.h"
#include "model/open_model.h"
#include "models/family.h"

namespace leq {

// The family whose transformers class computes what the configuration says. Throws Error naming
// what no class of those that leq knows does: added biases, layers that differ, a rotated stream.
const Family& hf_family_of(const ModelConfig& config);

// config.json as transformers 4 and 5 read it; `dtype` "float32".
Json hf_config(const Model& model, const Family& family);
// generation_config.json.
Json hf_generation_config(const Model& model);

}  // namespace leq
