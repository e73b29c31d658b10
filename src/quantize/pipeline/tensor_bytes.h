// A quantized tensor as bytes, for the rank that writes the file.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

std::vector<std::byte> tensor_bytes(const QuantizedTensor& tensor);
// Throws Error where the bytes are none.
QuantizedTensor tensor_of_bytes(std::span<const std::byte> bytes);

// Several after each other, each behind its size.
void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor);
// All that were appended, in their order. Throws Error as above.
std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes);

}  // namespace leq
