// The metadata of a GGUF file translated to a Hugging Face config.json and a family whose tensors
// have GGUF's names: the input of hf_import.h, so that both formats support the same families.
#pragma once

#include <string>
#include <vector>

#include "format/gguf_source.h"
#include "models/family.h"

namespace leq {

struct GgufModel {
  Family family;                   // rules with GGUF's names, which `names` holds
  std::vector<std::string> names;  // moved with the family, never copied: `family` refers to it
  std::string config_json;
  std::vector<std::string> left_out;  // name prefixes of the tensors of MTP layers
  std::int64_t paired_heads = 0;  // rows of q (and, of `paired_kv_heads`, of k) are in rotary pairs
  std::int64_t paired_kv_heads = 0;
};

// Throws Error naming the file and the key: not a model (an adapter, a vision tower, an importance
// matrix), an architecture that leq does not run, a missing key, an unsupported feature.
GgufModel read_gguf_model(const GgufSource& source);

}  // namespace leq
