// Serialization of a quantized tensor, which is sent to the rank that writes the file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

std::vector<std::byte> tensor_bytes(const QuantizedTensor& tensor);
// Throws Error if the bytes are not a valid tensor.
QuantizedTensor tensor_of_bytes(std::span<const std::byte> bytes);

// Appends one tensor, preceded by its size.
void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor);
// Returns all appended tensors, in order. Throws Error as tensor_of_bytes does.
std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes);

}  // namespace leq
