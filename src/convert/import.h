// Imports a checkpoint of any supported kind: a Hugging Face folder, or a GGUF file. Each kind has
// a reader that returns an ImportedModel, with a TensorSource that decodes its tensors.
#pragma once

#include <filesystem>

#include "convert/imported_model.h"
#include "convert/quantize_checkpoint.h"

namespace leq {

// Detects the kind by content. Throws Error as import_hf and import_gguf do.
ImportedModel import_checkpoint(const std::filesystem::path& path);
// Reads the configuration only.
ModelConfig import_config(const std::filesystem::path& path);

// Whether a checkpoint is quantized already, that is, some matrix is stored in codes. False for
// paths that are not a checkpoint.
bool holds_codes(const std::filesystem::path& path);

// Sets type and overrides so that each tensor keeps the checkpoint's type where a scheme holds it
// exactly, else the nearest (uint8-g32 where own_scheme has none). In models narrower than
// kNarrowWidth, linears that share an input have it in groups of 32 columns where one of them keeps
// 8 bits in such groups: coarser inputs would lose more than the codes. Throws Error where
// `options` name a method, a rewrite or statistics, which would choose other codes.
void keep_types(const ImportedModel& model, CheckpointOptions& options);

}  // namespace leq
