// A Hugging Face checkpoint folder as leq sees it: configuration, tensors under leq's names,
// tokenizer, generation defaults, chat template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "model/open_model.h"
#include "tokenizer/spec.h"

namespace leq {

// One tensor of the checkpoint under its leq name, as rows of f32. Transposes (GPT-2's Conv1D) and
// parts of joined tensors are already resolved.
struct ImportedTensor {
  std::string name;  // "layers.3.q"
  Shape shape;       // as leq stores it: [N, K] or [n]
  DType source_dtype = DType::f32;
  std::string source;  // the checkpoint's name, for messages
  // Rows [first, first + count) as f32 [count][K].
  std::function<void(std::int64_t first, std::int64_t count, std::span<float> out)> read;
  std::function<void()> drop;  // the source bytes will not be read again soon
};

struct ImportedModel {
  ModelConfig config;
  std::vector<ImportedTensor> tensors;  // in the order of the file
  bool has_tokenizer = false;
  TokenizerSpec tokenizer;
  std::string chat_template;
  GenerationDefaults generation;
  std::unique_ptr<TensorSource> source;  // what the tensors read from
  std::string description;               // "LlamaForCausalLM, bf16, 1 file"
};

// Throws Error naming file and key or tensor: an architecture that is not supported, a missing or
// unknown tensor, a wrong shape.
ImportedModel import_hf(const std::filesystem::path& folder);

// config.json alone, for tests and tools.
ModelConfig import_hf_config(std::string_view json_text, std::string_view source);

}  // namespace leq
