// Reads a Hugging Face tokenizer.json (a BPE model with its text rules) into a TokenizerSpec.
#pragma once

#include <string_view>

#include "convert/hf_text_rules.h"
#include "tokenizer/spec.h"

namespace leq {

struct HfTokenizer {
  TokenizerSpec spec;  // without bos and eos, which are in tokenizer_config.json
  AroundText around;   // the tokens that the post_processor adds
};

// `text`: the content of the file; `source`: its name for errors. Throws Error naming any
// unsupported setting as it is named in the file.
HfTokenizer read_hf_tokenizer(std::string_view text, std::string_view source);

}  // namespace leq
