// The tokenizer of a .leq file as Hugging Face files: tokenizer.json, tokenizer_config.json and the
// chat template.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "export/text_file.h"
#include "model/open_model.h"
#include "tokenizer/tables.h"

namespace leq {

enum class TokenizerUse : std::uint8_t { genai, transformers };  // tokenizer_config.json's reader

// The tokenizer.json for opened tables; `merges`: their stored table of merges. Throws Error naming
// a step that the format cannot represent, and for unigram models.
Json tokenizer_json(const TokenizerTables& tables, std::span<const std::byte> merges,
                    std::string_view source);

// Adds a note instead if the file has no tokenizer, or one that cannot be exported.
void append_tokenizer_files(const Model& model, TokenizerUse use, std::vector<TextFile>& files,
                            std::vector<std::string>& notes);

}  // namespace leq
