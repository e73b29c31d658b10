// Gated DeltaNet in GGUF files: llama.cpp's keys and tensor names, and the transformations of the
// weights by its converter.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "format/gguf.h"
#include "models/family.h"

namespace leq {

// The GGUF name, such as "blk.{}.ssm_out.weight"; empty if the family of `rule` is not hybrid, or
// if the tensor has the same name as in files of other families.
std::string_view gguf_delta_name(const TensorRule& rule, const Family& family);
// Adapts the rules, in place, to the stored values: gains include their offset of 1, A is stored as
// minus exp(A_log), and Qwen 3.5 interleaves value heads across key heads.
void store_delta_as_gguf(Family& family);
// Converts ssm.* and full_attention_interval to keys of config.json. `prefix`: "qwen35.".
void read_gguf_delta(const GgufMetadata& metadata, const std::string& prefix, const Family& family,
                     Json& config);

}  // namespace leq
