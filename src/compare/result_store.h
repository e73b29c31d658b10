// Stores results of finished steps in a folder, keyed by a hash of everything that they depend on,
// so that an interrupted comparison can be resumed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"

namespace leq {

class ResultStore {
 public:
  // Creates the folder if necessary. Throws Error if that fails.
  explicit ResultStore(std::filesystem::path folder);

  // The result stored for this identity; nullopt if there is none or it is damaged.
  std::optional<Json> find(const Json& identity) const;
  // Stores a result atomically.
  void keep(const Json& identity, const Json& result) const;

 private:
  std::filesystem::path path_of(const Json& identity) const;

  std::filesystem::path folder_;
};

// The first 16 digits of an identity's SHA-256, which are short enough for a file name.
std::string identity_hash(const Json& identity);

// Writes a small file atomically.
void write_whole_file(const std::filesystem::path& path, std::string_view text);

}  // namespace leq
