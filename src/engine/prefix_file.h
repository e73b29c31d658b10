// Saves the texts of an engine's prefix cache in a file for the next start of the program. The file
// is a sequence of saved prompts (prompt_file.h), the most recently used text first.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/engine.h"
#include "engine/prompt_file.h"

namespace leq {

struct KeptTexts {
  std::int64_t texts = 0, tokens = 0;
};

// Writes as many texts as would fit into the engine's cache without sharing pages. Replaces the
// file atomically, or removes it if there are no texts. Throws Error if the file cannot be written,
// and as Engine::save_prompt does.
KeptTexts write_kept_texts(const std::filesystem::path& path, Engine& engine,
                           const PromptOwner& owner);

// Loads the texts into the engine's prefix cache. No effect if the file does not exist. Throws
// Error if it is not a regular file, is damaged, is from another model or KV type, and as
// Engine::load_prompt does; texts that were loaded before the error stay in the cache.
KeptTexts read_kept_texts(const std::filesystem::path& path, Engine& engine,
                          const PromptOwner& owner);

}  // namespace leq
