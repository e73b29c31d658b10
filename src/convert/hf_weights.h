// The tensors of a checkpoint folder, those of quantized weights put together.
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

// `config`: that of the text model. `notes` gets a line of what is left out, and one that names the
// method of a quantized checkpoint. Throws Error as open_safetensors, read_quantization_config and
// PackedSource do.
std::unique_ptr<TensorSource> open_weights(const std::filesystem::path& folder, const Json& config,
                                           std::vector<std::string>& notes);

// A line where weights in codes have no scheme that holds their numbers.
void note_inexact(std::span<const TensorInput> tensors, std::vector<std::string>& notes);

// The type that holds all floats of a source exactly; f32 where some are in codes.
DType exact_dtype(const TensorSource& source);

}  // namespace leq
