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

enum class TokenizerUse : std::uint8_t { genai, transformers };  // who reads tokenizer_config.json

// tokenizer.json of opened tables; `merges`: their table of merges as stored. Throws Error naming
// the step that the format cannot express, and for unigram models.
Json tokenizer_json(const TokenizerTables& tables, std::span<const std::byte> merges,
                    std::string_view source);

// Adds a note instead where the file has no tokenizer, or one that cannot be written.
void append_tokenizer_files(const Model& model, TokenizerUse use, std::vector<TextFile>& files,
                            std::vector<std::string>& notes);

}  // namespace leq
