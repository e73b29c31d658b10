// Rotary positions of a GGUF file as config.json has them.
#pragma once

#include <string>

#include "base/json.h"
#include "format/gguf_source.h"

namespace leq {

// Sets rope_theta and rope_scaling from the keys that begin with `prefix` ("llama.") and from the
// tensor rope_freqs.weight, which stands for Llama 3's scaling. Throws Error naming key or tensor
// of a scaling that leq does not compute.
void read_gguf_rope(const GgufSource& source, const std::string& prefix, Json& config);

}  // namespace leq
