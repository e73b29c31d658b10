// Reads the tokenizer of a model folder, or one tokenizer file: tokenizer.json, sentencepiece's
// tokenizer.model, tiktoken rank files, vocab.json + merges.txt. Formats are detected by content.
#pragma once

#include <filesystem>
#include <string>

#include "tokenizer/spec.h"

namespace leq {

struct TokenizerImportOptions {
  // Name of a pre-tokenizer ("gpt-2", "llama-3", "qwen2") for files that do not specify one; empty:
  // as the files specify.
  std::string pretokenizer;
};

struct ImportedTokenizer {
  TokenizerSpec spec;
  std::string chat_template;   // the default one; empty where the folder has none
  std::filesystem::path file;  // what the pieces came from
};

// `path`: a folder (tokenizer.json wins over tokenizer.model or ranks over vocabulary and merges)
// or a file, whose folder then gives tokenizer_config.json. Throws Error naming the file and, where
// something is not supported, its name in the file ("pre_tokenizer type BertPreTokenizer").
ImportedTokenizer import_tokenizer(const std::filesystem::path& path,
                                   const TokenizerImportOptions& options = {});

}  // namespace leq
