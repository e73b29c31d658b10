// Serialization of a quantized tensor, for sending it to the rank that writes the file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

std::vector<std::byte> tensor_bytes(const QuantizedTensor& tensor);
// Throws Error where the bytes are not a valid tensor.
QuantizedTensor tensor_of_bytes(std::span<const std::byte> bytes);

// Appends one tensor, preceded by its size.
void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor);
// All appended tensors, in order. Throws Error as above.
std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes);

}  // namespace leq
