// Translates a GGUF file's keys for rotary positions to those of config.json.
#pragma once

#include <string>

#include "base/json.h"
#include "format/gguf_source.h"

namespace leq {

// Sets rope_theta and rope_scaling from the keys that begin with `prefix` ("llama.") and from the
// tensor rope_freqs.weight, which encodes Llama 3's scaling. Throws Error naming the key or tensor
// if the scaling is not supported.
void read_gguf_rope(const GgufSource& source, const std::string& prefix, Json& config);

}  // namespace leq
