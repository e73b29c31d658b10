// Imports a Hugging Face checkpoint folder: configuration, tensors under leq's names, tokenizer,
// generation defaults and chat template.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/imported_model.h"
#include "families/family.h"

namespace leq {

// Throws Error naming the file and the key or tensor: an unsupported architecture, a missing or
// unknown tensor, a wrong shape.
// `arriving`: see import_checkpoint.
ImportedModel import_hf(const std::filesystem::path& folder, ArrivingFiles* arriving = nullptr);

// Reads only config.json. The overload for a folder throws Error if it is not a checkpoint.
ModelConfig import_hf_config(const std::filesystem::path& folder);
ModelConfig import_hf_config(std::string_view json_text, std::string_view source);

// The config of the text model of a multimodal config.json ({"model_type": "mistral3",
// "text_config": {...}}) plus the wrapper's keys that apply to all of its models (tied head,
// quantization, end tokens); a config without "text_config" unchanged. Throws Error naming `source`
// if text_config is not an object or if the wrapper's architecture generates no text.
Json text_config_of(Json config, std::string_view source);
// Sets the constants of tensor rules that config.json gives by TensorTransform::constant_key.
void read_constants(const Json& json, std::string_view source, Family& family);

// Whether any weight of a checkpoint folder is stored as integers in a scheme of leq.
bool folder_holds_codes(const std::filesystem::path& folder);

// The tensors of a model under leq's names, read from the names in `family`. Throws Error naming
// `place` and the tensor if it is missing, has another shape or matches no rule. Tensors whose
// names begin with one of `left_out` are ignored. `source` must outlive the result.
std::vector<TensorInput> import_tensors(const TensorSource& source, const Family& family,
                                        const ModelConfig& config, std::string place,
                                        std::span<const std::string> left_out = {});

}  // namespace leq
