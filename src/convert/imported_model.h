// A checkpoint as input of a conversion, independent of its format.
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
  std::unique_ptr<TensorSource> source;      // source that `tensors` read from
  DType dtype = DType::f32;                  // holds every number exactly: f32 where tensors differ
  std::string description;                   // "LlamaForCausalLM, bf16"
  std::string folder;                        // its name, for provenance
  std::vector<std::filesystem::path> files;  // input files, which no output may replace
  std::vector<std::string> notes;            // messages for users: what was left out or corrected
};

}  // namespace leq
