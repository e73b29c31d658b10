// A Hugging Face checkpoint folder as leq sees it: configuration, tensors under leq's names,
// tokenizer, generation defaults, chat template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "quantize/methods/tensor_plan.h"
#include "tensor/dtype.h"
#include "tokenizer/spec.h"

namespace leq {

struct ImportedModel {
  ModelConfig config;
  std::vector<TensorInput> tensors;  // in the order of the file, under leq's names
  bool has_tokenizer = false;
  TokenizerSpec tokenizer;
  std::string chat_template;
  GenerationDefaults generation;
  std::unique_ptr<TensorSource> source;  // what the tensors read from
  DType dtype = DType::f32;              // holds every number exactly: f32 where tensors differ
  std::string description;               // "LlamaForCausalLM, bf16"
  std::string folder;                    // its name, for provenance
};

// Throws Error naming file and key or tensor: an architecture that is not supported, a missing or
// unknown tensor, a wrong shape.
ImportedModel import_hf(const std::filesystem::path& folder);

// config.json alone. The one of a folder throws Error where the folder is no checkpoint.
ModelConfig import_hf_config(const std::filesystem::path& folder);
ModelConfig import_hf_config(std::string_view json_text, std::string_view source);

}  // namespace leq
