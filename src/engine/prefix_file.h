// What an engine keeps of past texts, in a file for its next start: saved prompts (prompt_file.h)
// one after another, the text that was used last first.
#pragma once

#include <cstdint>
#include <filesystem>

#include "engine/engine.h"
#include "engine/prompt_file.h"

namespace leq {

struct KeptTexts {
  std::int64_t texts = 0, tokens = 0;
};

// As many texts as the engine's cache holds when each has pages of its own; a file of this name is
// replaced once the new one is whole, and removed where nothing is kept. Throws Error where the
// file cannot be written, and as Engine::save_prompt does.
KeptTexts write_kept_texts(const std::filesystem::path& path, Engine& engine,
                           const PromptOwner& owner);

// From now on requests may begin with these texts. Nothing where there is no such file. Throws
// Error where it is no regular file, damaged or of another model or KV type, and as
// Engine::load_prompt does: texts that were read before stay.
KeptTexts read_kept_texts(const std::filesystem::path& path, Engine& engine,
                          const PromptOwner& owner);

}  // namespace leq
