// Reads "quantization_config" of config.json: the method that quantized a checkpoint, and how to
// decode its tensors.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "format/packed_source.h"

namespace leq {

// Returns nullopt if the config has none. Throws Error naming `source` and the unsupported method,
// format or setting.
std::optional<PackedOptions> read_quantization_config(const Json& config, std::string_view source);

}  // namespace leq
