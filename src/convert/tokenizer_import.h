// Reads the tokenizer of a model folder or a single file: tokenizer.json, sentencepiece's
// tokenizer.model, tiktoken rank files, vocab.json + merges.txt. Detects formats by content.
#pragma once

#include <filesystem>
#include <string>

#include "tokenizer/spec.h"

namespace leq {

struct TokenizerImportOptions {
  // The pre-tokenizer ("gpt-2", "llama-3", "qwen2") for files that do not specify one; empty: use
  // the one in the files.
  std::string pretokenizer;
};

struct ImportedTokenizer {
  TokenizerSpec spec;
  std::string chat_template;   // the default one; empty if there is none
  std::filesystem::path file;  // the file that contains the pieces
};

// `path`: a folder (tokenizer.json takes precedence over tokenizer.model or ranks, these over a
// vocabulary with merges) or a file, whose folder then provides tokenizer_config.json. Throws Error
// naming the file and an unsupported setting's name in it ("pre_tokenizer type BertPreTokenizer").
ImportedTokenizer import_tokenizer(const std::filesystem::path& path,
                                   const TokenizerImportOptions& options = {});

}  // namespace leq
