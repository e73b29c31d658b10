// The split pattern of Mistral's tekken tokenizers. Folders written by transformers before 5.0
// contain another model's pattern, which tokenizes some texts differently (its fix_mistral_regex).
#pragma once

#include <string>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

// A message for users if a folder with this config.json may have the wrong pattern, or "".
std::string mistral_pattern_note(const Json& config, const TokenizerSpec& spec);

// Sets Mistral's own split pattern. Throws Error if the tokenizer has no split step to replace.
void fix_mistral_pattern(TokenizerSpec& spec);

}  // namespace leq
