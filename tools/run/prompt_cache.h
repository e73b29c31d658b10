// --prompt-cache: a completion's prompt is fed only once and its KV cache is stored in a file.
#pragma once

#include <filesystem>
#include <span>

#include "engine/generator.h"
#include "model/open_model.h"
#include "model/session.h"

namespace leq::run {

struct PromptCacheFile {
  std::filesystem::path path;
  bool with_reply = false;
  bool read_only = false;
};

PromptOwner prompt_owner(const Model& model, const Session& session);

// Loads the prompt of the file, so that requests can reuse its prefix. A file of another model,
// with other KV types, or too long is ignored with a note. Throws Error if it is damaged or not
// such a file. Returns the length of the common prefix of its tokens and `prompt`.
std::int64_t load_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner,
                               Generator& generator, std::span<const Token> prompt);

// Writes the file unless it already has all of `tokens`; `known` is the number that it has.
void save_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known);

}  // namespace leq::run
