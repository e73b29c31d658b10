// A model's linears in the formats of the compressed-tensors package: int-quantized (W8A8, W8A16)
// and pack-quantized (4 bits in groups).
#pragma once

#include <vector>

#include "base/json.h"
#include "export/safetensors_writer.h"
#include "families/family.h"
#include "model/open_model.h"

namespace leq {

struct CompressedTensors {
  std::vector<SafeTensor> tensors;
  Json config;  // "quantization_config" of config.json
};

// Embeddings and the head are f32. `quantized_inputs`: inputs are int8 with a scale per row if the
// file's are int8; otherwise f32. Throws Error naming the first linear whose codes or inputs the
// formats do not support, and an alternative. `model` must outlive the tensors.
CompressedTensors compressed_tensors(const Model& model, const Family& family,
                                     bool quantized_inputs);

}  // namespace leq
