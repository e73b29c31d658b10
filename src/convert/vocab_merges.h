// Reads GPT-2's two tokenizer files: a vocabulary (vocab.json, encoder.json) and its merges
// (merges.txt, vocab.bpe).
#pragma once

#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// Takes the contents of the two files and their names for errors. The spec has no text rules yet.
// Throws Error naming the file and the line.
TokenizerSpec read_vocab_merges(std::string_view vocabulary, std::string_view vocabulary_name,
                                std::string_view merges, std::string_view merges_name);

}  // namespace leq
