// A checkpoint of any kind that leq reads: a Hugging Face folder, or a GGUF file. Each kind is a
// reader that gives an ImportedModel, with a TensorSource that decodes what it holds.
#pragma once

#include <filesystem>

#include "convert/imported_model.h"
#include "convert/quantize_checkpoint.h"

namespace leq {

// By content. Throws Error as import_hf and import_gguf do.
ImportedModel import_checkpoint(const std::filesystem::path& path);
// Its configuration alone.
ModelConfig import_config(const std::filesystem::path& path);

// Whether the weights of a checkpoint are quantized already: whether some matrix is stored in
// codes. False for what is no checkpoint.
bool holds_codes(const std::filesystem::path& path);

// Sets type and overrides so that each tensor is stored as the checkpoint has it where a scheme
// holds that exactly, else in the nearest (uint8-g32 where own_scheme has none). Throws Error where
// `options` name a method, a rewrite or statistics, which would choose other codes.
void keep_types(const ImportedModel& model, CheckpointOptions& options);

}  // namespace leq
