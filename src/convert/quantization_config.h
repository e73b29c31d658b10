// Reads "quantization_config" of config.json: the method that quantized a checkpoint, and how to
// decode its tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "format/packed_source.h"

namespace leq {

// Returns nullopt if the config has none. Throws Error naming `source` and the unsupported method,
// format or setting.
std::optional<PackedOptions> read_quantization_config(const Json& config, std::string_view source);

// Adds the quantization_config that older tools wrote to a file of its own (hf_quant_config.json of
// ModelOpt, quantize_config.json of AutoGPTQ, quant_config.json of AutoAWQ) if the config has none.
// Returns whether it did. Throws Error like read_quantization_config, naming that file.
bool add_side_file(const std::filesystem::path& folder, Json& config);

}  // namespace leq
