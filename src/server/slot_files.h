// Saves the texts of slots as files in one folder, under names that clients choose. Checks that a
// name is valid and cannot escape the folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/prompt_file.h"

namespace leq {

class SlotFiles {
 public:
  // Throws Error if `folder` is not a writable folder. `owner`: stored in all saved files, and
  // required to match in files that are restored.
  SlotFiles(std::filesystem::path folder, const PromptOwner& owner);

  const PromptOwner& owner() const { return owner_; }
  // The path for a client's name, which must be a single path component of printable UTF-8 and must
  // not begin with a dot. Throws Error with the expected form.
  std::filesystem::path file(std::string_view name) const;
  // The file with the prefix cache's texts between runs; one per model.
  std::filesystem::path kept_texts() const;

  // Returns the size of the file. Throws Error like write_prompt_file.
  std::uint64_t write(std::string_view name, SavedPrompt prompt) const;
  // Throws Error if the file does not exist, is not a regular file or has another owner, and like
  // read_prompt_file.
  SavedPrompt read(std::string_view name) const;

 private:
  std::filesystem::path folder_;
  PromptOwner owner_;
};

}  // namespace leq
