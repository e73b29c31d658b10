// The tokenizer of a .leq file as files of Hugging Face: tokenizer.json, tokenizer_config.json and
// the chat template.
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

// tokenizer.json of opened tables; `merges`: their table of merges as it is stored. Throws Error
// naming the step that it has no words for, and for unigram models.
Json tokenizer_json(const TokenizerTables& tables, std::span<const std::byte> merges,
                    std::string_view source);

// A note where the file has no tokenizer, or one that cannot be written.
void append_tokenizer_files(const Model& model, TokenizerUse use, std::vector<TextFile>& files,
                            std::vector<std::string>& notes);

}  // namespace leq
