// Files in which texts of slots are saved: in one folder, under names that clients choose. Checks
// that a name is allowed and cannot leave the folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/prompt_file.h"

namespace leq {

class SlotFiles {
 public:
  // Throws Error where `folder` is not a writable folder. `owner`: stored in all saved files and
  // required of those that are restored.
  SlotFiles(std::filesystem::path folder, const PromptOwner& owner);

  const PromptOwner& owner() const { return owner_; }
  // The path for a client's name: a single path component of printable UTF-8 that does not begin
  // with a dot. Throws Error saying what is expected.
  std::filesystem::path file(std::string_view name) const;
  // The file of the prefix cache's texts between runs; one per model.
  std::filesystem::path kept_texts() const;

  // Returns the size of the file. Throws Error as write_prompt_file does.
  std::uint64_t write(std::string_view name, SavedPrompt prompt) const;
  // Throws Error where the file does not exist, is a link or not a regular file, has another owner,
  // and as read_prompt_file does.
  SavedPrompt read(std::string_view name) const;

 private:
  std::filesystem::path folder_;
  PromptOwner owner_;
};

}  // namespace leq
