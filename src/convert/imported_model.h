// A checkpoint as conversion sees it, wherever it came from.
#pragma once

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
  std::unique_ptr<TensorSource> source;      // what the tensors read from
  DType dtype = DType::f32;                  // holds every number exactly: f32 where tensors differ
  std::string description;                   // "LlamaForCausalLM, bf16"
  std::string folder;                        // its name, for provenance
  std::vector<std::filesystem::path> files;  // what lies in it and no output may replace
  std::vector<std::string> notes;            // lines for people: what was left out or corrected
};

}  // namespace leq
