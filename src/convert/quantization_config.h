// "quantization_config" of config.json: by what a checkpoint was quantized, and how its tensors are
// to be read.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "format/packed_source.h"

namespace leq {

// nullopt where the config has none. Throws Error naming `source` and the method, format or setting
// that leq does not read.
std::optional<PackedOptions> read_quantization_config(const Json& config, std::string_view source);

}  // namespace leq
