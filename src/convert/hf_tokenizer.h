// Reads a Hugging Face tokenizer.json (a BPE model with its text rules) into a TokenizerSpec.
#pragma once

#include <string_view>

#include "convert/hf_text_rules.h"
#include "tokenizer/spec.h"

namespace leq {

struct HfTokenizer {
  TokenizerSpec spec;  // without bos and eos, which tokenizer_config.json names
  AroundText around;   // what the post_processor adds
};

// `text`: the content of the file; `source` names it in errors. Throws Error on any unsupported
// setting, by its name in the file.
HfTokenizer read_hf_tokenizer(std::string_view text, std::string_view source);

}  // namespace leq
