// Saves the texts of slots as files in one folder, under names that clients choose. Checks that a
// name is valid and cannot escape the folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/saved_prefix.h"

namespace leq {

class SlotFiles {
 public:
  // Throws Error if `folder` is not a writable folder. `owner`: stored in all saved files, and
  // required to match in files that are restored.
  SlotFiles(std::filesystem::path folder, const PrefixOwner& owner);

  const PrefixOwner& owner() const { return owner_; }
  // The path for a client's name, which must be a single path component of printable UTF-8 and must
  // not begin with a dot. Throws Error with the expected form.
  std::filesystem::path file(std::string_view name) const;
  // The file with the prefix cache's texts between runs; one per model.
  std::filesystem::path kept_texts() const;

  // Returns the size of the file. Throws Error like PrefixWriter.
  std::uint64_t write(std::string_view name, const SavedPrefix& prefix) const;
  // The first prefix of a file. Throws Error if the file does not exist, is not a regular file, has
  // another owner or no prefix, and like PrefixFile.
  SavedPrefix read(std::string_view name) const;

 private:
  std::filesystem::path folder_;
  PrefixOwner owner_;
};

}  // namespace leq
