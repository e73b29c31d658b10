// Reads a tiktoken rank file, whose lines are a base64 piece and its rank, which is both its id and
// its merge priority (Llama-3's tokenizer.model, qwen.tiktoken).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

// The spec with the special tokens and text rules of a known vocabulary (128,000 ranks: Llama-3;
// 151,643: Qwen), or with the named pre-tokenizer. Throws Error naming the line, or the number of
// ranks if the vocabulary is unknown and `pretokenizer` is empty.
TokenizerSpec read_rank_file(std::string_view text, std::string_view source,
                             std::string_view pretokenizer);

// Decodes strict base64 with padding; nullopt for any other text.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace leq
