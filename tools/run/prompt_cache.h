// --prompt-cache: a completion's prompt is fed once and kept in a file.
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

// Where the file holds a prompt of this model: requests begin with it. A file of another model, of
// other KV types or too long is told in a line and left out. Throws Error where it is damaged or no
// such file. Returns how many tokens the file holds that `prompt` begins with.
std::int64_t load_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner,
                               Generator& generator, std::span<const Token> prompt);

// Writes the file, unless all of `tokens`, of which the file held `known`, are there.
void save_prompt_cache(const PromptCacheFile& file, const PromptOwner& owner, Generator& generator,
                       std::span<const Token> tokens, std::int64_t known);

}  // namespace leq::run
