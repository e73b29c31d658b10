// Gated DeltaNet in GGUF files: llama.cpp's keys and names, and what its converter makes of the
// numbers.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "format/gguf.h"
#include "models/family.h"

namespace leq {

// "blk.{}.ssm_out.weight"; empty where `rule` is of no hybrid family or has the name that other
// families' files have.
std::string_view gguf_delta_name(const TensorRule& rule, const Family& family);
// Rules as the numbers are stored, in place: gains with their 1, A as 0 - exp(A_log), of Qwen 3.5
// value heads in turns of their key heads.
void store_delta_as_gguf(Family& family);
// ssm.* and full_attention_interval as the family's config.json has them. `prefix`: "qwen35.".
void read_gguf_delta(const GgufMetadata& metadata, const std::string& prefix, const Family& family,
                     Json& config);

}  // namespace leq
