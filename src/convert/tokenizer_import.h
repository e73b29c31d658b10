// Finds the tokenizer files of a folder and detects their formats by content.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizer/spec.h"

namespace leq {

enum class TokenizerFormat { none, tokenizer_json, sentencepiece, ranks, vocabulary, merges };

// The format of a file's content; `none` if it is unknown. Never throws on invalid content.
TokenizerFormat tokenizer_format(std::string_view content);

struct TokenizerFile {
  std::filesystem::path path;
  TokenizerFormat format = TokenizerFormat::none;
};

struct TokenizerFiles {
  TokenizerFile main;            // tokenizer_json, sentencepiece, ranks or vocabulary
  std::filesystem::path merges;  // the merges of a vocabulary
};

// The tokenizer files to read for a folder or a file. Throws Error if there are none, if one file
// of a pair is missing, or if a folder has several of one kind and none has the usual name.
TokenizerFiles find_tokenizer_files(const std::filesystem::path& path);

struct ImportedTokenizer {
  TokenizerSpec spec;
  std::string chat_template;   // the default one; empty if there is none
  std::filesystem::path file;  // the file that contains the pieces
  Token end = kNoToken;        // what the tokenizer adds after a text, which need not be eos
};

// Reads the tokenizer of a model folder or a single file: tokenizer.json, sentencepiece's
// tokenizer.model, tiktoken rank files, vocab.json + merges.txt. Detects formats by content.
// `path`: a folder (tokenizer.json takes precedence over tokenizer.model or ranks, these over a
// vocabulary with merges) or a file, whose folder then provides tokenizer_config.json. Throws Error
// naming the file and an unsupported setting's name in it ("pre_tokenizer type BertPreTokenizer").
// `pretokenizer`, one of pretokenizer_names(), is for files that do not specify one; empty: use the
// one in the files.
ImportedTokenizer import_tokenizer(const std::filesystem::path& path,
                                   std::string_view pretokenizer = {});

}  // namespace leq
