// The split pattern of Mistral's tekken tokenizers: folders that transformers before 5.0 wrote
// carry another model's, by which some texts become other tokens (its fix_mistral_regex).
#pragma once

#include <string>

#include "base/json.h"
#include "tokenizer/spec.h"

namespace leq {

// A line for people where a folder with this config.json may carry the wrong pattern; else empty.
std::string mistral_pattern_note(const Json& config, const TokenizerSpec& spec);

// Splits by Mistral's own pattern. Throws Error where the tokenizer splits by none.
void fix_mistral_pattern(TokenizerSpec& spec);

}  // namespace leq
