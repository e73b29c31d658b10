// Imports a GGUF file of llama.cpp as an ImportedModel, as hf_import.h does for a folder.
#pragma once

#include <filesystem>

#include "convert/imported_model.h"

namespace leq {

// Throws Error naming the file and the key or tensor: not a GGUF file, not a model, an unsupported
// architecture, tokenizer or tensor type, a missing or unknown tensor, a wrong shape.
ImportedModel import_gguf(const std::filesystem::path& path);

// Reads only the configuration.
ModelConfig import_gguf_config(const std::filesystem::path& path);

}  // namespace leq
