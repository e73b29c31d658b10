// Where the texts of slots are saved: files of one folder, by names that clients choose. What such
// a name may be is decided here, and that it stays in the folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/prompt_file.h"

namespace leq {

class SlotFiles {
 public:
  // Throws Error where `folder` is no folder in which files can be written. `owner`: of all that
  // is saved, and what may be restored.
  SlotFiles(std::filesystem::path folder, const PromptOwner& owner);

  const PromptOwner& owner() const { return owner_; }
  // The file of a client's name: one name without a path, of printable UTF-8, that does not begin
  // with a point. Throws Error saying what is expected.
  std::filesystem::path file(std::string_view name) const;
  // Of the texts that are kept from one run to the next; each model has its own.
  std::filesystem::path kept_texts() const;

  // The size of the file. Throws Error as write_prompt_file does.
  std::uint64_t write(std::string_view name, SavedPrompt prompt) const;
  // Throws Error where there is no such file, where it is a link or otherwise no regular file, or
  // not of this owner, and as read_prompt_file does.
  SavedPrompt read(std::string_view name) const;

 private:
  std::filesystem::path folder_;
  PromptOwner owner_;
};

}  // namespace leq
