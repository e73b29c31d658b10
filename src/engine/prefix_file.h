// The texts of an engine's prefix cache in a file for its next start: a sequence of saved prompts
// (prompt_file.h), the most recently used text first.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/engine.h"
#include "engine/prompt_file.h"

namespace leq {

struct KeptTexts {
  std::int64_t texts = 0, tokens = 0;
};

// Writes as many texts as fit into the engine's cache if each had its own pages. The file is
// replaced atomically, and removed where there are no texts. Throws Error where the file cannot be
// written, and as Engine::save_prompt does.
KeptTexts write_kept_texts(const std::filesystem::path& path, Engine& engine,
                           const PromptOwner& owner);

// Loads the texts into the engine's prefix cache. No effect where the file does not exist. Throws
// Error where it is not a regular file, is damaged or from another model or KV type, and as
// Engine::load_prompt does: texts that were loaded before it are kept.
KeptTexts read_kept_texts(const std::filesystem::path& path, Engine& engine,
                          const PromptOwner& owner);

}  // namespace leq
