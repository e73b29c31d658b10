#include "engine/prefix_file.h"

#include <algorithm>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace leq {

namespace fs = std::filesystem;

KeptTexts write_kept_texts(const fs::path& path, Engine& engine, const PromptOwner& owner) {
  KeptTexts kept;
  AtomicFile file(path);
  std::int64_t pages = 0;
  for (const std::vector<Token>& text : engine.prefixes().texts()) {
    pages += pages_for(std::ssize(text));
    if (pages > engine.pages()) break;
    SavedPrompt prompt = engine.save_prompt(text);
    if (prompt.tokens.empty()) continue;
    prompt.owner = owner;
    file.append(prompt_file_bytes(prompt));
    ++kept.texts;
    kept.tokens += std::ssize(prompt.tokens);
  }
  if (kept.texts > 0) {
    file.commit();
  } else {
    std::error_code error;  // ignored: the file need not exist
    fs::remove(path, error);
  }
  return kept;
}

// Loads the texts in reverse order, so that the least recently used one is also evicted first.
KeptTexts read_kept_texts(const fs::path& path, Engine& engine, const PromptOwner& owner) {
  KeptTexts kept;
  if (!file_exists(path)) return kept;
  const MappedFile file(path);
  auto parts = split_prompt_files(file.bytes(), file.name());
  std::ranges::reverse(parts);
  for (const auto part : parts) {
    const SavedPrompt prompt = parse_prompt_file(part, file.name());
    require(prompt.owner.model == owner.model, file.name(), ": was written with another model");
    require(prompt.owner == owner, file.name(), ": was written with other KV types; run with the ",
            Setting{"key_type"}, " and ", Setting{"value_type"}, " that it was written with");
    if (!engine.load_prompt(prompt, file.name())) continue;
    ++kept.texts;
    kept.tokens += std::ssize(prompt.tokens);
  }
  return kept;
}

}  // namespace leq
