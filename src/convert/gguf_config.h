// Translates a GGUF file's metadata to a Hugging Face config.json and to a family with GGUF's
// tensor names: the input of hf_import.h, so that both formats support the same families.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "families/family.h"
#include "format/gguf.h"
#include "format/gguf_source.h"

namespace leq {

struct GgufModel {
  Family family;                   // rules with GGUF's names, whose texts are in `names`
  std::vector<std::string> names;  // never copied, because `family` references its strings
  std::string config_json;
  std::vector<std::string> left_out;  // prefixes of the names of MTP layers' tensors
  std::int64_t paired_heads = 0;      // rows of q (of k: `paired_kv_heads`) are in rotary pairs
  std::int64_t paired_kv_heads = 0;
};

// Throws Error naming the file and the key if the file is not a model (an adapter, a vision tower,
// an importance matrix), has an unsupported architecture or feature, or lacks a key.
GgufModel read_gguf_model(const GgufSource& source);

// Gives the family GGUF's tensor names: weights are never transposed, gains include their offset of
// 1, and tensors that Hugging Face checkpoints omit because they are constant are stored.
void name_tensors(const Family& family, GgufModel& model);

// Converts ssm.* and full_attention_interval to keys of config.json. `prefix`: "qwen35.".
void read_gguf_delta(const GgufMetadata& metadata, const std::string& prefix, const Family& family,
                     Json& config);

}  // namespace leq
