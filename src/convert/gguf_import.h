// A GGUF file of llama.cpp as leq sees it: as hf_import.h for folders.
#pragma once

#include <filesystem>

#include "convert/imported_model.h"

namespace leq {

// Throws Error naming file and key or tensor: no GGUF file, no model, an architecture, a tokenizer
// or a tensor type that is not supported, a missing or unknown tensor, a wrong shape.
ImportedModel import_gguf(const std::filesystem::path& path);

// Its configuration alone.
ModelConfig import_gguf_config(const std::filesystem::path& path);

}  // namespace leq
