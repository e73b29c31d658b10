// Opens the tensors of a checkpoint folder, with quantized weights assembled from their parts.
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

// `config`: that of the text model. `notes` gets a line for tensors that are left out, and one
// naming the method of a quantized checkpoint. Throws Error as open_safetensors,
// read_quantization_config and PackedSource do.
std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& folder, const Json& config,
                                           std::vector<std::string>& notes);

// Adds a note where quantized weights have no scheme that represents their values exactly.
void note_inexact(std::span<const TensorInput> tensors, std::vector<std::string>& notes);

// The type that holds all floats of a source exactly; f32 where some tensors are quantized.
DType exact_dtype(const TensorSource& source);

}  // namespace leq
