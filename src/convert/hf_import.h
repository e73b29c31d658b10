// A Hugging Face checkpoint folder as leq sees it: configuration, tensors under leq's names,
// tokenizer, generation defaults, chat template.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/imported_model.h"
#include "models/family.h"

namespace leq {

// Throws Error naming file and key or tensor: an architecture that is not supported, a missing or
// unknown tensor, a wrong shape.
ImportedModel import_hf(const std::filesystem::path& folder);

// config.json alone. The one of a folder throws Error where the folder is no checkpoint.
ModelConfig import_hf_config(const std::filesystem::path& folder);
ModelConfig import_hf_config(std::string_view json_text, std::string_view source);

// Whether some weight of a checkpoint folder is stored in integers that a scheme of leq holds.
bool folder_holds_codes(const std::filesystem::path& folder);

// The tensors of a model under leq's names, read from where `family` says they lie. Throws Error
// naming `place` and the tensor that is missing, has another shape, or has no place; those that
// begin as one of `left_out` need none. `source` must outlive the result.
std::vector<TensorInput> import_tensors(const TensorSource& source, const Family& family,
                                        const ModelConfig& config, std::string place,
                                        std::span<const std::string> left_out = {});

}  // namespace leq
