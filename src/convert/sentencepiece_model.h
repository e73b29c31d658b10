// Reads sentencepiece's tokenizer.model (BPE or unigram) with a protobuf reader of its own; any
// bytes result in a TokenizerSpec or an Error.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// Throws Error naming `source` and the offset of damaged bytes, or the unsupported feature (a
// precompiled_charsmap, piece type UNUSED, model types WORD and CHAR).
TokenizerSpec read_sentencepiece_model(std::span<const std::byte> bytes, std::string_view source);

}  // namespace leq
