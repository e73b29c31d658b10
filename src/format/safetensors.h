// Reads safetensors: one file, or the shards of an index. Total on untrusted bytes.
#pragma once

#include <filesystem>
#include <memory>

#include "format/tensor_source.h"

namespace leq {

// `path`: a .safetensors file, a model.safetensors.index.json, or a folder with either (the index
// wins). Throws Error naming file, offset and tensor: bad header, overlapping or missing bytes,
// a dtype other than F32, F16, BF16 or an integer type, a shard that the index names and the folder
// lacks.
std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path);

}  // namespace leq
