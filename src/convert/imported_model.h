// A checkpoint as the input of a conversion, independent of its file format.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "quantize/methods/method.h"
#include "tensor/quant_scheme.h"
#include "tokenizer/spec.h"

namespace leq {

struct ImportedModel {
  ModelConfig config;
  std::vector<TensorInput> tensors;  // in the order of the file, under leq's names
  bool has_tokenizer = false;
  TokenizerSpec tokenizer;
  std::string chat_template;
  GenerationDefaults generation;
  EmbeddingRules embedding;
  std::unique_ptr<TensorSource> source;      // must outlive the readers in `tensors`
  DType dtype = DType::f32;                  // represents every number; f32 if tensors differ
  std::string description;                   // "LlamaForCausalLM, bf16"
  std::string folder;                        // the folder's name, for provenance
  std::vector<std::filesystem::path> files;  // input files, which must not be overwritten
  std::vector<std::string> notes;            // messages for users: what was ignored or corrected
};

}  // namespace leq
