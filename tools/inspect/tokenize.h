// Tokenizes text with the tokenizer found at a path.
#pragma once

#include <filesystem>
#include <string>

#include "tokenizer/tokenizer.h"

namespace leq {

// `path` is a .leq file, a model folder, or a tokenizer file or folder; `text_path` is a file, or
// "-" for standard input. `pretokenizer` names the pattern for files without one ("gpt-2"),
// otherwise it is empty. Returns the ids as a JSON array on one line. Throws Error naming the path,
// or the offset of a byte that is not UTF-8.
std::string tokenize_file(const std::filesystem::path& path, const std::string& text_path,
                          const std::string& pretokenizer, const EncodeOptions& options);

}  // namespace leq
