// Exports a .leq file as a Hugging Face folder: config.json, model.safetensors, tokenizer files.
#pragma once

#include <cstdint>
#include <filesystem>

#include "export/onnx_folder.h"
#include "model/open_model.h"

namespace leq {

enum class HfWeights : std::uint8_t {
  floats,      // the dequantized values of the file's codes, f32
  compressed,  // the file's codes and scales, in formats of the compressed-tensors package
};

// Throws Error like hf_family_of and, for compressed, naming the first linear whose scheme the
// formats do not support. config.json is written last. `inputs`: of compressed linears.
ExportedFolder export_hf(const Model& model, HfWeights weights, ExportedInputs inputs,
                         const std::filesystem::path& folder);

}  // namespace leq
