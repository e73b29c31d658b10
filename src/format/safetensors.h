// Reads safetensors, one file or the shards of an index. Safe on untrusted bytes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "format/tensor_source.h"

namespace leq {

// `path`: a .safetensors file, a model.safetensors.index.json, or a folder with either (the index
// takes precedence). Throws Error naming file, offset and tensor: bad header, overlapping or
// missing bytes, a dtype other than F32, F16, BF16 or an integer type, or a shard of the index that
// is missing. `notes` gets a line if tensors of a file are ignored because the index omits them or
// assigns them to another file.
std::unique_ptr<TensorSource> open_safetensors(const std::filesystem::path& path,
                                               std::vector<std::string>* notes = nullptr);

}  // namespace leq
