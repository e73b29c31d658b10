// Imports a checkpoint of any supported format, a Hugging Face folder or a GGUF file. Each format
// has a reader that returns an ImportedModel, whose TensorSource decodes the tensors.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/imported_model.h"

namespace leq {

// Detects the format by content. Throws Error like import_hf and import_gguf. `arriving`: files of
// the folder that are still being downloaded, which must outlive the result; floats only.
ImportedModel import_checkpoint(const std::filesystem::path& path,
                                ArrivingFiles* arriving = nullptr);
// Reads only the configuration.
ModelConfig import_config(const std::filesystem::path& path);

// Whether a checkpoint is already quantized, that is, some matrix is stored as codes. False if the
// path is not a checkpoint.
bool holds_codes(const std::filesystem::path& path);
// Whether the config.json of a checkpoint folder says that its weights are quantized.
bool says_quantized(const std::filesystem::path& folder);

// The types with which each tensor keeps the checkpoint's type if a scheme represents it exactly,
// otherwise gets the nearest (uint8-g32 if own_scheme has none). In models narrower than
// kNarrowWidth, linears that share an input get it in groups of 32 columns if one of them keeps 8
// bits in such groups, because coarser inputs would lose more than the codes.
struct KeptTypes {
  std::string most;                 // the type of most weights
  std::vector<TypeOverride> types;  // one for each matrix
};
KeptTypes kept_types(const ImportedModel& model);

}  // namespace leq
