// The metadata of a GGUF file as a Hugging Face config.json and a family whose tensors have GGUF's
// names: what hf_import.h reads, so that every family that leq runs is read from both.
#pragma once

#include <string>
#include <vector>

#include "format/gguf_source.h"
#include "models/family.h"

namespace leq {

struct GgufModel {
  Family family;                   // rules with GGUF's names, which `names` holds
  std::vector<std::string> names;  // moved with the family, never copied from under it
  std::string config_json;
  std::vector<std::string> left_out;  // what tensors begin with that guess ahead (MTP)
  std::int64_t paired_heads = 0;  // rows of q (and, of `paired_kv_heads`, of k) are in rotary pairs
  std::int64_t paired_kv_heads = 0;
};

// Throws Error naming the file and the key: no model (an adapter, a vision tower, an importance
// matrix), an architecture that leq does not run, a missing key, a feature that is not computed.
GgufModel read_gguf_model(const GgufSource& source);

}  // namespace leq
