// Writes a .safetensors file tensor by tensor (github.com/huggingface/safetensors: a length, a JSON
// header, the bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace leq {

struct SafeTensor {
  std::string name;
  std::string dtype;  // "F32", "I8", "I32", "I64"
  std::vector<std::int64_t> shape;
  std::function<std::vector<std::byte>()> bytes;  // called once, when the tensor is written
};

// The size of a tensor in bytes, computed from its dtype and shape.
std::uint64_t safetensor_bytes(const SafeTensor& tensor);

// Writes the file atomically; returns its size.
std::uint64_t write_safetensors(const std::filesystem::path& path,
                                const std::vector<SafeTensor>& tensors);

}  // namespace leq
