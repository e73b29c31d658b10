// Finds tokenizer files in a folder and detects their formats by content.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace leq {

enum class TokenizerFormat { none, tokenizer_json, sentencepiece, ranks, vocabulary, merges };

// The format of a file's content; `none` for anything else. Total: never throws on bad content.
TokenizerFormat tokenizer_format(std::string_view content);

struct TokenizerFile {
  std::filesystem::path path;
  TokenizerFormat format = TokenizerFormat::none;
};

struct TokenizerFiles {
  TokenizerFile main;            // tokenizer_json, sentencepiece, ranks or vocabulary
  std::filesystem::path merges;  // beside a vocabulary
};

// The tokenizer files to read for a folder or a file. Throws Error where there are none, where half
// of a pair is missing, or where a folder holds several of one kind without the usual name.
TokenizerFiles find_tokenizer_files(const std::filesystem::path& path);

}  // namespace leq
