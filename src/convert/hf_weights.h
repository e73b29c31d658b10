// Opens the tensors of a checkpoint folder; quantized weights are assembled from their parts.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "format/tensor_source.h"
#include "quantize/methods/tensor_plan.h"
#include "tensor/dtype.h"

namespace leq {

// `config`: the text model's. `notes` gets a line about tensors that are not imported and one with
// the method of a quantized checkpoint. Throws Error like open_safetensors,
// read_quantization_config and PackedSource.
std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& folder, const Json& config,
                                           std::vector<std::string>& notes);

// Adds a note if no scheme represents the values of some quantized weights exactly.
void note_inexact(std::span<const TensorInput> tensors, std::vector<std::string>& notes);

// The type that represents all floats of a source exactly; f32 if some tensors are quantized.
DType exact_dtype(const TensorSource& source);

}  // namespace leq
