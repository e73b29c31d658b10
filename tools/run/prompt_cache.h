// --prompt-cache: a completion's prompt is fed only once and its KV cache is stored in a file.
#pragma once

#include <filesystem>
#include <span>

#include "engine/generator.h"
#include "engine/saved_prefix.h"

namespace leq::run {

struct PromptCacheFile {
  std::filesystem::path path;
  bool with_reply = false;
  bool read_only = false;
};

// Loads the texts of the file, so that requests can reuse their prefixes. A file of another model
// or layout, of an older version, or with a text that is too long is ignored with a note. Throws
// Error if it is damaged or not such a file. Returns the length of the common prefix of `prompt`
// and a text.
std::int64_t load_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner,
                               Generator& generator, std::span<const Token> prompt);

// Writes the file unless it already has all of `tokens`; `known` is the number that it has.
void save_prompt_cache(const PromptCacheFile& file, const PrefixOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known);

}  // namespace leq::run
