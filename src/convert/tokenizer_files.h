// Finds the tokenizer files of a folder and detects their formats by content.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

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

}  // namespace leq
