// Reads sentencepiece's tokenizer.model (BPE or unigram) with its own protobuf reader, which is
// total: any bytes give a TokenizerSpec or an Error.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// Throws Error naming `source`, the offset of damaged bytes, or what is not supported (a
// precompiled_charsmap, piece type UNUSED, model types WORD and CHAR).
TokenizerSpec read_sentencepiece_model(std::span<const std::byte> bytes, std::string_view source);

}  // namespace leq
